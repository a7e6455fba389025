package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
)

// slowStage1 is native with one entrypoint that is slow or never ends.
type slowStage1 struct{ entrypoint, takes string }

func (s slowStage1) String() string { return s.entrypoint + "-" + s.takes }

// install puts the image beside the shim and returns the runtime that uses it.
func (s slowStage1) install(t *testing.T) (runtime string) {
	t.Helper()
	name := "slow" + strings.NewReplacer("-", "", ".", "").Replace(s.String())
	dir := filepath.Join(suite.shims, "stage1", name)
	if out, err := exec.Command("cp", "-aT", filepath.Join(suite.shims, "stage1/native"), dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the image: %v: %s", err, out)
	}
	manifest := read(t, filepath.Join(dir, "manifest"))
	manifest = strings.Replace(manifest, `"coreos.com/rkt/stage1/serve"`, `"example.com/unused"`, 1) // or it would not be executed
	write(t, filepath.Join(dir, "manifest"), strings.Replace(manifest, `"/`+s.entrypoint+`"`, `"/slow"`, 1))
	script := fmt.Sprintf("#!/bin/sh\ntrap '' TERM\nsleep %s\nexec \"${0%%/*}/%s\" \"$@\"\n", s.takes, s.entrypoint)
	if s.takes == "infinity" {
		script = "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 1; done\n"
	}
	slow := filepath.Join(dir, "rootfs/slow")
	write(t, slow, script)
	if err := os.Chmod(slow, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("containerd-shim-rkt-v1", filepath.Join(suite.shims, "containerd-shim-rkt-"+name+"-v1")); err != nil {
		t.Fatal(err)
	}
	return "io.containerd.rkt-" + name + ".v1"
}

// endLimit is the longest time for the end of a pod whose stage1 hangs in stop, in stop --force
// and in gc: docs/lifecycle.md.
const endLimit = 45 * time.Second

// A pod whose stage1 uses all the time that the ABI allows for its end is removed completely.
// Delete does not wait for that, the shim's `delete` reports no error, and a container of the
// same id can be created at once.
func TestAStage1ThatIsSlowToEndLeavesNothing(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		slow := []slowStage1{{"stop", "4.5"}, {"gc", "4.5"}}
		if *longFlag {
			slow = append(slow, []slowStage1{{"stop", "8"}, {"gc", "8"}, {"stop", "infinity"}, {"gc", "infinity"}}...)
		}
		ctx := c.context(t)
		c.watchDeletes(t)
		var all sync.WaitGroup
		for _, s := range slow {
			container := c.containerOf(t, c.client, c.image(t, c.client), s.install(t), c.id(), []string{"testprog", "exit", "3"})
			all.Go(func() {
				for range 2 { // twice with the same id
					took, err := c.lifeOf(ctx, container, 3)
					if err != nil {
						t.Errorf("%s: %v", s, err)
					}
					t.Logf("%s: deleted after %s", s, took.Round(time.Millisecond))
				}
				if err := container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
					t.Errorf("%s: %v", s, err)
				}
			})
		}
		all.Wait()
		c.expectNothingLeftWithin(t, endLimit)
	})
}

// lifeOf runs a container's task to its end and deletes it.
func (*column) lifeOf(ctx context.Context, container containerd.Container, code uint32) (took time.Duration, err error) {
	task, err := container.NewTask(ctx, cio.NullIO)
	if err != nil {
		return 0, fmt.Errorf("create: %w", err)
	}
	exited, err := task.Wait(ctx)
	if err == nil {
		err = task.Start(ctx)
	}
	if err != nil {
		return 0, fmt.Errorf("start: %w", err)
	}
	<-exited
	began := time.Now()
	status, err := task.Delete(ctx)
	// containerd gives a Shutdown three seconds, which may be too short on this machine. The
	// client may then ask again, and gets the answer to the first call.
	for try := 0; errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && try < 3; try++ {
		status, err = task.Delete(ctx)
	}
	if err == nil && status.ExitCode() != code {
		err = fmt.Errorf("exit code %d, want %d", status.ExitCode(), code)
	}
	return time.Since(began), err
}

// expectNothingLeftWithin is expectNothingLeft with a longer limit.
func (c *column) expectNothingLeftWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if found, err := c.remains(); err == nil && len(c.unblamed(found)) == 0 {
			return
		}
	}
	c.expectNothingLeft(t)
}

// failedDeletes counts the failed calls of the shim's `delete`, and returns the last line about
// one.
func (c *column) failedDeletes() (n int, last string) {
	for _, line := range strings.Split(c.daemon.LogTail(1<<20), "\n") {
		if strings.Contains(line, "failed to clean up after shim disconnected") || strings.Contains(line, "failed to delete dead shim") {
			n, last = n+1, line
		}
	}
	return n, last
}

// watchDeletes fails the test at its end if a `delete` of the shim has failed meanwhile.
func (c *column) watchDeletes(t *testing.T) {
	before, _ := c.failedDeletes()
	t.Cleanup(func() {
		if n, line := c.failedDeletes(); n > before {
			t.Errorf("%d calls of `delete` have failed, the last one: %s", n-before, line)
		}
	})
}

// burden keeps the machine busy with n processes until release is called.
func burden(t *testing.T, n int) (release func()) {
	t.Helper()
	var all []*exec.Cmd
	release = func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		all = nil
	}
	t.Cleanup(func() { release() })
	for range n {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
	}
	return release
}

// Pods that are deleted at once on a busy machine leave nothing, and no `delete` fails.
func TestPodsThatAreDeletedAtOnceOnABusyMachineLeaveNothing(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		ctx := c.context(t)
		c.watchDeletes(t)
		img := c.image(t, c.client)
		var tasks []containerd.Task
		for _, id := range c.ids(c.often(20, 0, 200)) {
			container := c.containerOf(t, c.client, img, c.runtime, id, []string{"testprog", "sleep", "1000"})
			task := c.newTask(t, container, cio.NullIO)
			if err := task.Start(ctx); err != nil {
				t.Fatal(err)
			}
			tasks = append(tasks, task)
		}
		release := burden(t, c.often(8, 0, 40))
		atOnce(t, tasks, func(task containerd.Task) error {
			_, err := task.Delete(ctx, containerd.WithProcessKill)
			return err
		})
		release()
		c.expectNothingLeftWithin(t, endLimit)
	})
}

// A container that is created again and again under one id is not affected by the container
// before.
func TestACreateMeetsNothingOfTheLastContainerOfItsID(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		ctx := c.context(t)
		c.watchDeletes(t)
		container := c.container(t, []string{"testprog", "exit", "3"})
		burden(t, c.often(8, 0, 40))
		for i := range c.often(10, 0, 200) {
			if _, err := c.lifeOf(ctx, container, 3); err != nil {
				t.Fatalf("life %d: %v", i+1, err)
			}
		}
	})
}
