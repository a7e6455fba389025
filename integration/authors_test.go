package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// The stage1 that docs/stage1-authors.md builds, as its readers get it, runs under containerd.
func TestTheStage1OfTheAuthorsGuideRunsContainers(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) { c.runsExample(t, "runc") })
}

// So does the stage1 of docs/stage1-bubblewrap.md, with what ctr asks for by default.
func TestTheStage1OfTheBubblewrapGuideRunsContainers(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		guide := c.runsExample(t, "bubblewrap")
		const mine = "grep -E '^(CapEff|CapBnd|CapInh|NoNewPrivs|Groups):' /proc/self/status; ulimit -n; cat /proc/keys | wc -c; touch /proc/sys/kernel/domainname 2>&1; hostname x 2>&1"
		app := guide.run(t, []string{"--rm"}, guide.id(), "sh", "-c", mine)
		for _, want := range []string{
			"Groups:\t0 \nCapInh:\t0000000000000000\nCapEff:\t00000000a80425fb\nCapBnd:\t00000000a80425fb\nNoNewPrivs:\t1\n1024\n0\n",
			"/proc/sys/kernel/domainname: Read-only file system", "hostname: sethostname: Operation not permitted",
		} {
			if !strings.Contains(app.stdout, want) {
				t.Errorf("an app: %q is not in %q, %s", want, app.stdout, app.stderr)
			}
		}
		id := guide.id()
		guide.run(t, []string{"-d"}, id, "sleep", "1000").must(t)
		if exec := guide.ctr(t, "task", "exec", "--exec-id", "x", "--fifo-dir", fifoDir(c.daemon.Dir()), id, "sh", "-c", mine); exec.stdout != app.stdout {
			t.Errorf("an exec: %q, and the app: %q, %s", exec.stdout, app.stdout, exec.stderr)
		}
		guide.ctr(t, "task", "exec", "--exec-id", "x", "--fifo-dir", fifoDir(c.daemon.Dir()), id, "sh", "-c", "exit 42").mustExit(t, 42)
		for _, refused := range []struct{ flag, word string }{
			{"--user=1000", "/process/user/uid"}, {"--cap-add=CAP_SYS_PTRACE", "bubblewrap: CAP_SYS_PTRACE"}, {"--seccomp", "/linux/seccomp"},
		} {
			if r := guide.run(t, []string{refused.flag, "--rm"}, guide.id(), "true"); r.code == 0 || !strings.Contains(r.stderr, refused.word) {
				t.Errorf("%s: code %d, %s", refused.flag, r.code, r.stderr)
			}
		}
		c.serial = guide.serial
	})
}

// runsExample builds a guide's stage1, and uses containers of it.
func (c *column) runsExample(t *testing.T, example string) *column {
	t.Helper()
	name := "guide-" + example
	dir := filepath.Join(suite.shims, "stage1", name)
	link := filepath.Join(suite.shims, "containerd-shim-rkt-"+name+"-v1")
	for _, path := range []string{dir, link} { // left by the column that ran before
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(filepath.Join(suite.shims, "rktctl"), "stage1", "init", "--example", example, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil {
		t.Fatal(err)
	}
	guide := *c
	guide.runtime = "io.containerd.rkt-" + name + ".v1"

	guide.run(t, []string{"--rm"}, guide.id(), "echo", "hello").must(t).mustSay(t, "hello\n")
	guide.run(t, []string{"--rm"}, guide.id(), "sh", "-c", "exit 42").mustExit(t, 42)
	if r := guide.run(t, []string{"--rm"}, guide.id(), "/bin/absent"); r.code == 0 || !strings.Contains(r.stderr, "no such file or directory") {
		t.Errorf("a program that is missing: code %d, %s", r.code, r.stderr)
	}

	id := guide.id()
	guide.run(t, []string{"-d"}, id, "sleep", "1000").must(t)
	guide.ctr(t, "task", "exec", "--exec-id", "x", "--fifo-dir", fifoDir(c.daemon.Dir()), id, "echo", "inside").must(t).mustSay(t, "inside\n")
	guide.ctr(t, "task", "pause", id).must(t)
	guide.ctr(t, "task", "resume", id).must(t)
	guide.ctr(t, "task", "kill", "-s", "KILL", id).must(t)
	var deleted result
	wait.Observe(t, "the killed task can be deleted", func() (bool, string) {
		deleted = guide.ctr(t, "task", "delete", id)
		return !strings.Contains(deleted.stderr, "must be stopped"), deleted.stderr
	})
	if deleted.code != 137 && !strings.Contains(deleted.stderr, "137") {
		t.Errorf("the killed task was deleted with code %d, %q", deleted.code, deleted.stderr)
	}
	guide.ctr(t, "container", "delete", id).must(t)
	c.serial = guide.serial
	c.expectNothingLeft(t)
	return &guide
}
