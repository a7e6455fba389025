package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// podRecord has the fields of shim.json (docs/layout.md) that the tests read.
type podRecord struct {
	Sandbox    string `json:"sandbox"`
	Supervisor struct {
		PID int `json:"pid"`
	} `json:"supervisor"`
}

// pod finds the directory and the record of the pod of a container or group.
func (c *column) pod(t *testing.T, sandbox string) (dir string, record podRecord) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dataDir(c.daemon.Dir()), "pods/run/*/shim.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		record = podRecord{}
		if err := json.Unmarshal([]byte(read(t, f)), &record); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		if record.Sandbox == sandbox {
			return filepath.Dir(f), record
		}
	}
	t.Fatalf("%s has no pod", sandbox)
	return "", podRecord{}
}

// alive reports whether a process runs. A process that has ended and was not yet reaped by its
// new parent does not count.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestTheDeathOfTheSupervisorEndsThePod(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		ctx := c.context(t)
		name := "group-" + c.id()
		running := c.running(t, []string{"testprog", "fork", "2"}, group(name))
		created := c.task(t, []string{"testprog", "sleep", "1000"}, group(name))
		runningExited, createdExited := c.wait(t, running), c.wait(t, created)
		dir, record := c.pod(t, name)
		lock, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			t.Error("the lock of a pod that runs is free")
		}
		if err := syscall.Kill(record.Supervisor.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		expectExit(t, runningExited, 137)
		expectExit(t, createdExited, 137)
		for _, task := range []containerd.Task{running, created} {
			if pid := int(task.Pid()); alive(pid) {
				t.Errorf("process %d of %s is alive", pid, task.ID())
			}
			expectStatus(t, ctx, task, containerd.Stopped)
		}
		wait.Observe(t, "the pod's lock is free", func() (bool, string) {
			err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
			return err == nil, fmt.Sprint(err)
		})
		lock.Close() // so that Delete finds it free
		for _, task := range []containerd.Task{running, created} {
			c.drop(t, task)
		}
		c.expectNothingLeft(t)
	})
}

func TestTheDeathOfTheShimLeavesNothingAndTellsTrueExitCodes(t *testing.T) {
	eachRelease(t, func(t *testing.T, c *column) {
		if c.name == "runc" && c.release.old {
			t.Skip("runc's shim records exits from containerd 2.0 on")
		}
		name := "group-" + c.id()
		over := c.container(t, []string{"testprog", "exit", "42"}, group(name))
		events := map[string]*taskEvents{over.ID(): c.listen(t, over.ID())}
		want := map[string]string{over.ID(): "exit init 42"}
		first := c.newTask(t, over, cio.NullIO)
		exited := c.wait(t, first)
		if err := first.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		var pids []int
		for range 3 {
			container := c.container(t, []string{"testprog", "fork", "1"}, group(name))
			events[container.ID()] = c.listen(t, container.ID())
			want[container.ID()] = "exit init 137"
			task := c.newTask(t, container, cio.NullIO)
			if err := task.Start(c.context(t)); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, int(task.Pid()))
		}
		expectExit(t, exited, 42)
		if err := syscall.Kill(c.shim(t, over.ID()), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		for id, j := range events {
			code, _ := strings.CutPrefix(want[id], "exit init ")
			j.await(t, "delete "+code) // containerd's own event, from the answer of the shim's `delete`
			for _, w := range j.words() {
				if strings.HasPrefix(w, "exit init") && w != want[id] {
					t.Errorf("%s: event %q, want %q (requirements.md#D5)", id, w, want[id])
				}
			}
		}
		for _, pid := range pids {
			if alive(pid) {
				t.Errorf("process %d is alive (requirements.md#D4)", pid)
			}
		}
		wait.Observe(t, "the tasks are gone", func() (bool, string) {
			r := c.ctr(t, "task", "ls", "-q").must(t)
			return strings.TrimSpace(r.stdout) == "", r.stdout
		})
	})
}

func TestTheDeathOfShimAndSupervisorAtOnceLeavesNothing(t *testing.T) {
	eachOfOurs(t, func(t *testing.T, c *column) {
		container := c.container(t, []string{"testprog", "fork", "2"})
		events := c.listen(t, container.ID())
		task := c.newTask(t, container, cio.NullIO)
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		_, record := c.pod(t, task.ID())
		for _, pid := range []int{c.shim(t, task.ID()), record.Supervisor.PID} {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		events.await(t, "delete 137") // containerd's own event: the shim's `delete` has ended
		if alive(int(task.Pid())) {
			t.Errorf("process %d is alive (requirements.md#D4)", task.Pid())
		}
	})
}
