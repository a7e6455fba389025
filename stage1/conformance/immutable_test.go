package conformance_test

import (
	"strings"
	"testing"
)

// The checks that apply to an immutable image are as strict as for other images, except that
// its app may keep the lock.
func TestAnImmutableImageFailsWhereItIsWrong(t *testing.T) {
	for name, b := range map[string]struct{ check, body, words string }{
		"a descriptor too many": {"start/descriptors", `
			echo $$ >pid; exec 9</etc/passwd; ready $$
			exec chroot "stage1/rootfs/opt/stage2/$RKT_APP/rootfs" "/bin/$(ls "stage1/rootfs/opt/stage2/$RKT_APP/rootfs/bin" | grep -v -- -)" inspect`, "the program has the descriptors"},
		"another exit code": {"exit/code", `
			echo $$ >pid; ready $$; exit 9`, "the exit code is 9"},
		"nothing ready": {"streams/output", `exit 0`, "run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := broken{base: "fly", entry: "run", body: b.body}.image(t)
			v := verifyJSON(t, append(flyAccepts(), "--run", b.check, dir)...)
			if v.code != 1 || len(v.Checks) != 1 || v.Checks[0].Outcome != "failed" || !strings.Contains(v.Checks[0].Words, b.words) {
				t.Errorf("code %d, %+v; want a failure with %q", v.code, v.Checks, b.words)
			}
		})
	}
}

// Checks that add an app do not apply, and their result says why. The image can still reach
// every level.
func TestWhatAnImmutableImageCannotHaveIsSkippedWithTheReason(t *testing.T) {
	t.Parallel()
	v := verifyJSON(t, append(flyAccepts(), "--level", "2", "--run", "add/second", "--run", "enter/ended", bundledImage(t, "fly"))...)
	if v.code != 0 || len(v.Checks) != 2 {
		t.Fatalf("code %d: %+v", v.code, v.Checks)
	}
	for _, c := range v.Checks {
		if c.Outcome != "absent" || !strings.Contains(c.Words, "the stage1 is immutable") {
			t.Errorf("%+v", c)
		}
	}
}
