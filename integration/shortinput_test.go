package integration

import (
	"fmt"
	"strings"
	"testing"
)

// ctr calls CloseIO at the end of its own input, but only if it has the answer to its Create by
// then. If that is too early for runc's shim, the program waits for ever.
// requirements.md#T11
func TestAShortInputEnds(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		for i := range 5 {
			text := fmt.Sprintf("input %d\n", i)
			r := c.ctrWith(t, strings.NewReader(text), c.runArgs([]string{"--rm"}, c.id(), "cat")...).must(t)
			r.mustSay(t, text)
		}
		id := c.id()
		c.run(t, []string{"-d"}, id, "testprog", "sleep", "1000").must(t)
		for i := range 5 {
			text := fmt.Sprintf("input %d\n", i)
			args := []string{"task", "exec", "--fifo-dir", fifoDir(c.daemon.Dir()), "--exec-id", fmt.Sprintf("e%d", i), id, "cat"}
			c.ctrWith(t, strings.NewReader(text), args...).must(t).mustSay(t, text)
		}
	})
}
