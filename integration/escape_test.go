package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// escapes are attacks of package escape, with the flags that they need and the only answers
// that are right.
func escapes(t *testing.T) (all []escapeCase) {
	t.Helper()
	canary := filepath.Join(t.TempDir(), "canary")
	if err := os.WriteFile(canary, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return []escapeCase{
		{attack: []string{"fresh", "proc"}, says: "operation not permitted\n"},
		{attack: []string{"fresh", "sysfs"}, says: "operation not permitted\n"},
		{attack: []string{"fresh", "proc"}, flags: []string{"--cap-add", "CAP_SYS_ADMIN"}, says: "operation not permitted\n"},
		{attack: []string{"below", canary}, flags: []string{"--cap-add", "CAP_SYS_ADMIN"}, says: "not found\n"},
		{attack: []string{"fresh", "proc"}, flags: []string{"--no-pivot"}, says: "operation not permitted\n"},
		{attack: []string{"fresh", "sysfs"}, flags: []string{"--no-pivot"}, says: "operation not permitted\n"},
	}
}

type escapeCase struct {
	attack []string
	flags  []string // of ctr run
	says   string
}

// Without a seccomp profile a container can make namespaces of its own.
func TestNoMountOfTheHostsIsBelowTheRootOfAContainer(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, e := range escapes(t) {
			attack := append([]string{"testprog", "escape"}, e.attack...)
			r := c.run(t, append([]string{"--rm"}, e.flags...), c.id(), attack...).must(t)
			if r.stdout != e.says {
				t.Errorf("%v %v, first process: %q, want %q", e.attack, e.flags, r.stdout, e.says)
			}
			id := c.start(t, e.flags, "testprog", "sleep", "1000")
			if r := c.exec(t, nil, id, attack...).must(t); r.stdout != e.says {
				t.Errorf("%v %v, exec: %q, want %q", e.attack, e.flags, r.stdout, e.says)
			}
		}
	})
}

// The process that executes a container's program still has the program of its stage1.
func TestAContainerDoesNotRunTheProgramOfItsStage1(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		id := c.start(t, nil, "testprog", "sleep", "1000")
		for what, r := range map[string]result{
			"first process": c.run(t, []string{"--rm"}, c.id(), "/proc/self/exe"),
			"exec":          c.exec(t, nil, id, "/proc/self/exe"),
		} {
			missing := strings.Contains(r.stderr, "no such file or directory") || c.name == "oci" // which says less of an exec
			if r.code == 0 || !missing {
				t.Errorf("%s: code %d, %s", what, r.code, r.stderr)
			}
		}
	})
}
