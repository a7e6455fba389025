package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/pkg/cio"
)

// bareNotices is the last commit whose stage 0 accepts no more than three words in a notice,
// and whose stage1s write no more.
const bareNotices = "66c238c"

// buildOld builds the shim and the images of a commit into a directory. It skips the test if
// the repository lacks the commit, as a shallow clone does.
func buildOld(t *testing.T, commit, to string) {
	t.Helper()
	if err := exec.Command("git", "-C", "..", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		t.Skipf("the history of the repository is not here: %v", err)
	}
	source := t.TempDir()
	build := exec.Command("bash", "-euo", "pipefail", "-c", `git archive "$1" | tar -x -C "$2"
cd "$2"
make -s BIN="$3" VERSION=old REVISION=old build`, "bash", commit, source, to)
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v: %s", commit, err, out)
	}
}

// An operator may pin an image, or upgrade an image while the shim of a pod is the old one. No
// exit is lost, neither with an older stage1 under this stage 0 nor with this stage1 under an
// older stage 0.
func TestExitsAreToldAmongReleases(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		old := filepath.Join(t.TempDir(), "old")
		buildOld(t, bareNotices, old)
		programs, err := c.release.find(c.context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, mix := range []struct{ name, short, shim, stage1 string }{
			{"an older image", "oi", *binFlag, old},
			{"an older shim", "os", old, *binFlag},
		} {
			t.Run(mix.name, func(t *testing.T) {
				shims := filepath.Join(suite.dir, mix.short+"-shims")
				copyTree(t, mix.shim, shims)
				t.Cleanup(func() { _ = os.RemoveAll(shims) })
				images := filepath.Join(shims, "stage1")
				if err := os.RemoveAll(images); err != nil {
					t.Fatal(err)
				}
				copyTree(t, filepath.Join(mix.stage1, "stage1"), images)
				opts := c.release.options(mix.short, programs, c.daemon.Namespace()+"-"+mix.short)
				opts.Shims = []string{shims}
				c.private(t, c.release, opts).tellsExits(t)
			})
		}
	})
}

func (c *column) tellsExits(t *testing.T) {
	ctx := c.context(t)
	task := c.running(t, exitsOnTerm(42))
	ended := c.wait(t, task)
	for _, probe := range []struct {
		id   string
		args []string
		code uint32
	}{
		{"one", []string{"testprog", "exit", "7"}, 7},
		{"two", []string{"sh", "-c", "kill -KILL $$"}, 137},
		{"one", []string{"true"}, 0},
	} {
		exec, err := task.Exec(ctx, probe.id, process(t, ctx, task, probe.args...), cio.NullIO)
		if err != nil {
			t.Fatal(err)
		}
		exited := c.wait(t, exec)
		if err := exec.Start(ctx); err != nil {
			t.Fatal(err)
		}
		expectExit(t, exited, probe.code)
		deleteTask(t, ctx, exec)
	}
	c.termUntilGone(t, task, ended, 42)
	killed := c.running(t, []string{"testprog", "sleep", "1000"})
	dead := c.wait(t, killed)
	kill(t, ctx, killed, syscall.SIGKILL)
	expectExit(t, dead, 137)
}
