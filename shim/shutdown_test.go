package shim

import (
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// requirements.md#T16
func TestShutdownWaitsForTheLastApp(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.create("b")
	for _, id := range []string{"a", "b"} {
		must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: id})
		select {
		case <-b.svc.Done():
			t.Fatal("shut down with apps")
		default:
		}
		must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: id})
	}
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "b"})
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "b"})
	wait.For(t, "Done", b.svc.Done())
	if !b.pod.closed {
		t.Error("the pod is not closed")
	}
	// requirements.md#E4: all that was published has been delivered by then.
	if got := b.sink.topics(); !slices.Equal(got, []string{"/tasks/create", "/tasks/create", "/tasks/delete", "/tasks/delete"}) {
		t.Errorf("events: %v", got)
	}
	_, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "late", Bundle: bundle(t)})
	wantCode(t, err, codes.Unavailable, "Create after Shutdown")
}

// requirements.md#T16
func TestShutdownDeletesAnEndedAppThatItNames(t *testing.T) {
	b := newBench(t)
	b.create("a")
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	select {
	case <-b.svc.Done():
		t.Fatal("shut down with an app that lives")
	default:
	}
	b.pod.exit("a", "", 0)
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "other"})
	select {
	case <-b.svc.Done():
		t.Fatal("shut down although the client may still ask for the app's exit")
	default:
	}
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	wait.For(t, "Done", b.svc.Done())
	if !b.pod.closed {
		t.Error("the pod is not closed")
	}
}

// requirements.md#T16
func TestShutdownWaitsForADeleteInProgress(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.pod.exit("a", "", 9)
	begun, release := make(chan struct{}), make(chan struct{})
	b.pod.onDelete = func(pod.AppID) {
		close(begun)
		<-release
	}
	deleted := make(chan *task.DeleteResponse, 1)
	go func() { deleted <- must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"}) }()
	wait.For(t, "the Delete", begun)
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	select {
	case <-b.svc.Ending():
		t.Error("the service ends while an app is being deleted")
	default:
	}
	close(release)
	if r := wait.For(t, "the answer to Delete", deleted); r.ExitStatus != 9 {
		t.Errorf("Delete: %v", r)
	}
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	wait.For(t, "Done", b.svc.Done())
}

// An app that is being created is not in the pod yet, so the service may have found the
// pod empty; and since then the app may have been created.
func TestTheRegistryDoesNotCloseOnAnAppThatIsBeingCreated(t *testing.T) {
	var r registry
	try := func(seen int, wantClosed, wantAgain bool) {
		t.Helper()
		if closed, again := r.closeIfEmpty(seen); closed != wantClosed || again != wantAgain {
			t.Errorf("closed %v, again %v; want %v, %v", closed, again, wantClosed, wantAgain)
		}
	}
	a, exec := name{app: "a"}, name{"b", "e"}
	before := r.seen()
	for _, n := range []name{a, exec} {
		if err := r.take(n); err != nil {
			t.Fatal(err)
		}
		if err := r.take(n); !errdefs.IsAlreadyExists(err) {
			t.Errorf("%s a second time: %v", n, err)
		}
	}
	try(r.seen(), false, false)
	during := r.seen()
	r.giveBack(a)
	try(before, false, true)
	try(during, false, true)
	try(r.seen(), true, false) // an exec is its app's
	if err := r.take(a); !errdefs.IsUnavailable(err) {
		t.Errorf("an app after that: %v", err)
	}
}

// requirements.md#N5
func TestShutdownIsNotHeldUpByAContainerdThatIsAway(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.sink.next("/tasks/create")
	b.sink.stop()
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
	began := time.Now()
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	wait.For(t, "Done", b.svc.Done())
	if d := time.Since(began); d < flushLimit-time.Second {
		t.Errorf("gave up on the events after %s", d)
	}
	// Close reports the undelivered events; remove them, so that the clean-up does not.
	b.svc.events.mu.Lock()
	b.svc.events.waiting = nil
	b.svc.events.mu.Unlock()
}

// requirements.md#E1
func TestEventsOfAnAppComeInTheirOrder(t *testing.T) {
	b := newBench(t)
	b.create("a")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	b.addExec("a", "e")
	pid := must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a", ExecID: "e"}).Pid
	b.pod.exit("a", "e", 5)
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a", ExecID: "e"})
	b.pod.exit("a", "", 6)
	del := must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
	b.sink.next("/tasks/create")
	b.sink.next("/tasks/start")
	if e := b.sink.next("/tasks/exec-added").(*events.TaskExecAdded); e.ExecID != "e" || e.ContainerID != "a" {
		t.Errorf("%v", e)
	}
	if e := b.sink.next("/tasks/exec-started").(*events.TaskExecStarted); e.Pid != pid {
		t.Errorf("%v", e)
	}
	if e := b.sink.next("/tasks/exit").(*events.TaskExit); e.ID != "e" || e.ContainerID != "a" || e.ExitStatus != 5 || e.Pid != pid {
		t.Errorf("%v", e)
	}
	if e := b.sink.next("/tasks/exit").(*events.TaskExit); e.ID != "a" || e.ExitStatus != 6 {
		t.Errorf("%v", e)
	}
	e := b.sink.next("/tasks/delete").(*events.TaskDelete)
	if e.ID != "" || e.ExitStatus != del.ExitStatus || !proto.Equal(e.ExitedAt, del.ExitedAt) || e.Pid != del.Pid {
		t.Errorf("event %v, answer %v", e, del)
	}
}
