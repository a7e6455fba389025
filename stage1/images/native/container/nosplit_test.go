package container

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A check of the stack may yield to Go's scheduler, whose calls a filter may leave to an agent
// that does not have the listener yet: then the app would never start.
func TestNothingYieldsToTheSchedulerUnderTheFilter(t *testing.T) {
	native := filepath.Join(t.TempDir(), "native")
	if out, err := exec.Command("go", "build", "-o", native, "..").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"last", "handOver"} {
		code, err := exec.Command("go", "tool", "objdump", "-s", `container\.\(\*program\)\.`+name+"$", native).Output()
		if err != nil || !strings.Contains(string(code), "RawSyscall") {
			t.Fatalf("the code of %s: %v: %s", name, err, code)
		}
		if strings.Contains(string(code), "runtime.morestack") {
			t.Errorf("%s checks its stack", name)
		}
	}
}
