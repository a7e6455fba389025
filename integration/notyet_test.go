package integration

import "testing"

// What is skipped by later elsewhere is refused as such, and leaves the task as
// it was: a call that begins to work fails this case, and its skips go with it.
func TestWhatIsNotThereYetSaysSo(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		task := c.running(t, []string{"testprog", "sleep", "1000"})
		if _, err := task.Metrics(ctx); err == nil { // containerd says only that there are none
			t.Error("stats: no error")
		}
	})
}
