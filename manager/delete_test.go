package manager

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// delete calls the action as containerd does: without stdin, in the bundle.
func (d *daemon) delete(namespace, id string, flags ...string) output {
	d.t.Helper()
	bundle := d.bundle(namespace, id, nil)
	return d.call(bundle, namespace, id, nil, env17(namespace), append(append([]string{"-bundle", bundle}, flags...), "delete")...)
}

// deleted is delete with its answer read.
func (d *daemon) deleted(namespace, id string, flags ...string) *task.DeleteResponse {
	d.t.Helper()
	out := d.delete(namespace, id, flags...)
	d.succeeded(out)
	var r task.DeleteResponse
	if err := proto.Unmarshal(out.stdout, &r); err != nil {
		d.t.Fatalf("delete answered %q: %v", out.stdout, err)
	}
	return &r
}

func (d *daemon) plan(namespace, id string, p collectPlan) {
	d.t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		d.t.Fatal(err)
	}
	write(d.t, filepath.Join(d.bundle(namespace, id, nil), "plan.json"), text)
}

// requirements.md#D2
func TestDeleteReportsTheRecordedExit(t *testing.T) {
	d := newDaemon(t)
	at := time.Unix(1732159865, 123456789)
	d.plan("ns", "c1", collectPlan{Exit: Exit{PID: 77, Status: 42, At: at}})
	r := d.deleted("ns", "c1")
	if r.Pid != 77 || r.ExitStatus != 42 || !r.ExitedAt.AsTime().Equal(at) {
		t.Errorf("delete answered %v", r)
	}
	collected, err := os.ReadFile(filepath.Join(d.state, "ns", "c1", "collected"))
	if err != nil || string(collected) != "ns/c1" {
		t.Errorf("collected %q, %v", collected, err)
	}
}

// requirements.md#D5
func TestDeleteReports137NowForAnEndThatNobodySaw(t *testing.T) {
	d := newDaemon(t)
	d.plan("ns", "c1", collectPlan{Exit: Exit{PID: 77}})
	before := time.Now()
	r := d.deleted("ns", "c1")
	if at := r.ExitedAt.AsTime(); r.Pid != 77 || r.ExitStatus != 137 || at.Before(before) || at.After(time.Now()) {
		t.Errorf("delete answered %v", r)
	}
}

// requirements.md#D3
func TestDeleteMayComeTwiceAndKnowMoreFlags(t *testing.T) {
	d := newDaemon(t)
	for range 2 {
		d.deleted("ns", "c1", "-debug", "-from-the-future", "value")
	}
}

// requirements.md#D2
func TestFailedDeleteSaysWhyAndAnswersNothing(t *testing.T) {
	d := newDaemon(t)
	d.plan("ns", "c1", collectPlan{Fail: "rootfs is busy"})
	out := d.delete("ns", "c1")
	if out.err == nil || len(out.stdout) > 0 || !strings.Contains(string(out.stderr), "delete c1: rootfs is busy") {
		t.Errorf("delete ended with %v, stdout %q, stderr %q", out.err, out.stdout, out.stderr)
	}
}

// requirements.md#D1
func TestDeleteGivesUpBeforeContainerdDoes(t *testing.T) {
	d := newDaemon(t)
	d.plan("ns", "c1", collectPlan{Hang: true})
	start := time.Now()
	out := d.delete("ns", "c1")
	if out.err == nil || !strings.Contains(string(out.stderr), "not done after "+deleteBudget.String()) {
		t.Errorf("delete ended with %v, stderr %q", out.err, out.stderr)
	}
	if took := time.Since(start); took < deleteBudget {
		t.Errorf("delete gave up after %v", took)
	}
}

// A child process finishes the work for which `delete` has no time, also after containerd
// has removed the bundle.
// requirements.md#D1
func TestDeleteLeavesAProcessBehindForTheRest(t *testing.T) {
	for name, c := range map[string]struct {
		plan    collectPlan
		mounted bool
	}{
		"of the pod":                           {plan: collectPlan{Exit: Exit{Status: 42, At: time.Unix(1, 0)}}},
		"of the pod, by another process":       {plan: collectPlan{Exit: Exit{Status: 42, At: time.Unix(1, 0)}}, mounted: true},
		"of the container":                     {plan: collectPlan{Fail: "process 7 survives SIGKILL"}},
		"of the container, by another process": {plan: collectPlan{Fail: "process 7 survives SIGKILL"}, mounted: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			if c.mounted {
				d.mounted("ns", "c1")
			}
			finished := filepath.Join(t.TempDir(), "finished")
			c.plan.Exit.Rest, c.plan.Exit.Left = finished, true
			d.plan("ns", "c1", c.plan)
			out := d.delete("ns", "c1")
			if exists(finished) {
				t.Error("delete waited for the rest")
			}
			if err := os.WriteFile(finished+mayFinish, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if failed := out.err != nil; failed != (c.plan.Fail != "") || failed && !strings.Contains(string(out.stderr), c.plan.Fail) {
				t.Errorf("delete ended with %v, stderr %q", out.err, out.stderr)
			}
			if !c.mounted {
				if err := os.RemoveAll(filepath.Join(d.state, "ns", "c1")); err != nil {
					t.Fatal(err)
				}
			}
			wait.Until(t, "the rest is done", func() bool { return exists(finished) })
		})
	}
}

// requirements.md#B33
func TestDeleteRemovesTheSocketOfADeadServer(t *testing.T) {
	for name, forget := range map[string]string{"as containerd stored it": "", "before containerd stored it": "bootstrap.json"} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t)
			address := d.start24("ns", "c1", map[string]string{"io.kubernetes.cri.sandbox-id": "pod1"})
			pid := connect(t, address).shimPID()
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			ended(t, pid)
			if forget != "" {
				os.Remove(filepath.Join(d.state, "ns", "c1", forget))
			}
			d.deleted("ns", "c1")
			if exists(early.PathOf(address)) {
				t.Errorf("%s is still there", address)
			}
		})
	}
}

// requirements.md#D3
func TestDeleteAfterAnOrdinaryDeleteLeavesServerAndSiblingsAlone(t *testing.T) {
	d := newDaemon(t)
	group := map[string]string{annotation.Group: "pod1"}
	address := d.start24("ns", "c1", group)
	d.start24("ns", "c2", group)
	c := connect(t, address)
	c.create("c2")
	if r := d.deleted("ns", "c1"); r.ExitStatus != 137 {
		t.Errorf("delete answered %v", r)
	}
	if !c.has("c2") || !exists(early.PathOf(address)) {
		t.Error("delete of c1 took c2 or the server along")
	}
	d.start24("ns", "c3", group)
}

func TestDeleteAsksALivingServerThatStillHasTheContainer(t *testing.T) {
	d := newDaemon(t)
	group := map[string]string{annotation.Group: "pod1"}
	address := d.start24("ns", "c1", group)
	c := connect(t, address)
	c.create("c1")
	c.create("c2")
	// The collector would answer with another exit.
	d.plan("ns", "c1", collectPlan{Exit: Exit{PID: 77, Status: 1, At: time.Unix(1, 0)}})
	if r := d.deleted("ns", "c1"); r.Pid != 42 || r.ExitStatus != 137 {
		t.Errorf("delete answered %v, and not what the server said", r)
	}
	if c.has("c1") || !c.has("c2") {
		t.Errorf("afterwards the server has c1: %v, c2: %v", c.has("c1"), c.has("c2"))
	}
	// The server ends with its last container: containerd sends no Shutdown.
	pid := c.shimPID()
	d.start24("ns", "c2", group)
	d.deleted("ns", "c2")
	ended(t, pid)
}

func TestDeleteDoesNotWaitForAServerThatHangs(t *testing.T) {
	d := newDaemon(t)
	address := d.start24("ns", "c1", nil)
	c := connect(t, address)
	c.create("c1")
	pid := c.shimPID()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "no thread of the server runs", func() bool { return stopped(t, pid) })
	d.plan("ns", "c1", collectPlan{Exit: Exit{PID: 77, Status: 9, At: time.Unix(1, 0)}})
	if r := d.deleted("ns", "c1"); r.Pid != 77 || r.ExitStatus != 9 {
		t.Errorf("delete answered %v", r)
	}
}

// stopped reports whether all threads of a process are stopped.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && !strings.HasPrefix(string(text[strings.LastIndexByte(string(text), ')')+1:]), " T ") {
			return false
		}
	}
	return true
}

func TestDeleteOfAnotherBundleAtTheSamePathAsksNobody(t *testing.T) {
	d := newDaemon(t)
	address := d.start24("ns", "c1", nil)
	c := connect(t, address)
	c.create("c1")
	bundle := d.bundle("ns", "c1", nil)
	elsewhere := t.TempDir()
	out := d.call(elsewhere, "ns", "c1", nil, nil, "-bundle", bundle, "delete")
	d.succeeded(out)
	if !c.has("c1") {
		t.Error("the server's container of that id is gone")
	}
}
