package pod

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// patient is the context of a call that tells when it has begun to wait.
type patient struct {
	context.Context
	once  sync.Once
	waits chan struct{}
}

func newPatient(ctx context.Context) *patient {
	return &patient{Context: ctx, waits: make(chan struct{})}
}

func (p *patient) Done() <-chan struct{} {
	p.once.Do(func() { close(p.waits) })
	return p.Context.Done()
}

// heldStdio is streams whose output ends when the test says so.
type heldStdio struct {
	noStdio
	drains, drained chan struct{}
}

func (s *heldStdio) Drain(context.Context) {
	close(s.drains)
	<-s.drained
}

// answer is what a Delete returned.
type answer struct {
	st  Status
	err error
}

// deleteBehind sends a Delete, waits until begun is closed, and then sends two more:
// one whose client has gone, and one that still waits when release is called. It
// returns the answers in this order.
func (w *world) deleteBehind(id AppID, exec ExecID, begun <-chan struct{}, release func()) (first, left, waited answer) {
	w.t.Helper()
	var all sync.WaitGroup
	all.Go(func() { first.st, first.err = w.Delete(w.t.Context(), id, exec) })
	<-begun
	gone, cancel := context.WithCancel(w.t.Context())
	cancel()
	left.st, left.err = w.Delete(gone, id, exec)
	ctx := newPatient(w.t.Context())
	all.Go(func() { waited.st, waited.err = w.Delete(ctx, id, exec) })
	<-ctx.waits
	release()
	all.Wait()
	return first, left, waited
}

// expectSame checks three answers of deleteBehind, and that the next is NotFound.
func (w *world) expectSame(id AppID, exec ExecID, code uint32, first, left, waited answer) {
	w.t.Helper()
	if first.err != nil || first.st.Exit.Code != code {
		w.t.Errorf("the first Delete: %+v", first)
	}
	if !errors.Is(left.err, context.Canceled) || errdefs.IsNotFound(left.err) {
		w.t.Errorf("a Delete whose client went away: %+v", left)
	}
	if waited.err != nil || waited.st.PID != first.st.PID || waited.st.Exit != first.st.Exit {
		w.t.Errorf("the second Delete: %+v, the first: %+v", waited, first)
	}
	if _, err := w.Delete(w.t.Context(), id, exec); !errdefs.IsNotFound(err) {
		w.t.Errorf("a Delete after an answered one: %v, want NotFound", err)
	}
}

func TestTwoDeletesOfAnAppAtOnceReturnTheSame(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 42")
	w.mustCreate("b", "sleep 1000") // so that the pod goes on, and app/rm is called
	defer w.mustDelete("b", "")
	w.mustStart("a", "")
	w.mustWait("a", "")
	st, err := w.Status("a", "")
	if err != nil || st.Deleting {
		t.Errorf("before its Delete: %+v, %v", st, err)
	}
	release := make(chan struct{})
	w.stage1.on(abi.AppRm, waitsFor(release))
	begun := make(chan struct{})
	go func() {
		defer close(begun)
		for st, err := w.Status("a", ""); err == nil && !st.Deleting; st, err = w.Status("a", "") {
		}
	}()
	first, left, waited := w.deleteBehind("a", "", begun, func() { close(release) })
	w.expectSame("a", "", 42, first, left, waited)
}

func TestTwoDeletesOfAnExecAtOnceReturnTheSame(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "sleep 1000")
	defer w.mustDelete("a", "")
	defer w.mustWait("a", "")
	defer func() { _ = w.Kill(t.Context(), "a", "", killSignal, true) }()
	w.mustStart("a", "")
	io := &heldStdio{drains: make(chan struct{}), drained: make(chan struct{})}
	w.stage1.script("a/e", "exit 7")
	if err := w.AddExec(t.Context(), "a", ExecConfig{ID: "e", Process: readProcess(t, `{"args":["sh"],"cwd":"/"}`), Stdio: io}); err != nil {
		t.Fatal(err)
	}
	w.mustStart("a", "e")
	w.mustWait("a", "e")
	first, left, waited := w.deleteBehind("a", "e", io.drains, func() { close(io.drained) })
	w.expectSame("a", "e", 7, first, left, waited)
}

// unreadStdio is streams whose client reads late.
type unreadStdio struct {
	noStdio
	asked chan time.Time
	read  chan struct{}
}

func (s *unreadStdio) Settle(_ context.Context, end time.Time) {
	s.asked <- end
	<-s.read
}

func TestTheAnswerToWaitComesAfterTheOutput(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "sleep 1000")
	defer w.mustKillAndDelete("a")
	w.mustStart("a", "")
	io := &unreadStdio{asked: make(chan time.Time, 1), read: make(chan struct{})}
	w.stage1.script("a/e", "exit 7")
	if err := w.AddExec(t.Context(), "a", ExecConfig{ID: "e", Process: readProcess(t, `{"args":["sh"],"cwd":"/"}`), Stdio: io}); err != nil {
		t.Fatal(err)
	}
	w.mustStart("a", "e")
	answer := make(chan Exit, 1)
	go func() {
		exit, _ := w.Wait(t.Context(), "a", "e")
		answer <- exit
	}()
	end := wait.For(t, "the question whether the output was read", io.asked)
	wait.Still(t, "the number of answers", func() int { return len(answer) })
	close(io.read)
	if exit := wait.For(t, "the answer", answer); exit.Code != 7 || !exit.At.Equal(end) {
		t.Errorf("the exit is %v, and the output was waited for from %s on", exit, end)
	}
}

func TestADeleteDoesTheWorkOfAnEarlierOneThatFailed(t *testing.T) {
	p := newProcess("a", "", &noStdio{}, false, &recorder{more: make(chan struct{}, 1)}, new(outbox))
	mustPush(t, p, EventCreated)
	p.exists(&Process{PID: 9}, false)
	begun, release := make(chan struct{}), make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		_, err := p.deleteOnce(t.Context(), func(context.Context) error {
			close(begun)
			<-release
			_ = p.step(stepUndelete)
			return errdefs.ErrUnavailable
		})
		failed <- err
	}()
	<-begun
	ctx := newPatient(t.Context())
	go func() {
		<-ctx.waits
		close(release)
	}()
	worked := false
	st, err := p.deleteOnce(ctx, func(context.Context) error {
		worked = true
		return p.step(stepDeleted)
	})
	if err != nil || st.PID != 9 || !worked {
		t.Errorf("the second Delete: %+v, %v, and it has worked: %t", st, err, worked)
	}
	if err := <-failed; !errdefs.IsUnavailable(err) {
		t.Errorf("the first Delete: %v", err)
	}
}

func TestAnAppThatIsBeingStartedIsKilledByItsDelete(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "sleep 60")
	st, err := w.Status("a", "")
	if err != nil {
		t.Fatal(err)
	}
	hold := make(chan struct{})
	w.stage1.on(abi.AppStart, waitsFor(hold))
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { _, _ = w.Start(t.Context(), "a", "") })
	wait.Until(t, "the app is being started", func() bool { return w.stage1.called(abi.AppStart) })
	for range 2 {
		all.Go(func() {
			st, err := w.Delete(t.Context(), "a", "")
			if errdefs.IsNotFound(err) {
				return // it came after the other one
			}
			if err != nil || st.Exit.Code != 137 && st.Exit.Code != failedStart {
				t.Errorf("delete: %+v, %v", st, err)
			}
		})
	}
	p, err := proc.Open(st.PID, 0)
	if err == nil {
		err = errors.Join(p.Wait(t.Context()), p.Close())
	}
	if err != nil && !errors.Is(err, proc.ErrGone) {
		t.Error(err)
	}
	close(hold)
}

// Of two concurrent Deletes, one may end after another app has got the id.
func TestADeleteForgetsOnlyTheAppThatItMet(t *testing.T) {
	p := New(PodConfig{})
	first, next := &app{id: "a"}, &app{id: "a"}
	for _, a := range []*app{first, next} {
		if err := p.reserve(a); err != nil {
			t.Fatal(err)
		}
		if err := p.forget(t.Context(), first); err != nil {
			t.Fatal(err)
		}
	}
	if p.Empty("") {
		t.Error("the app that was created since is forgotten")
	}
	if !p.Empty("a") {
		t.Error("the pod has another app")
	}
}

// None of them is the last one when it leaves, and a Shutdown may never come: containerd may be
// killed before it sends one.
func TestThePodEndsIfItsAppsAreDeletedAtTheSameTime(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "sleep 60")
	w.mustRun("b", "sleep 60")
	both := make(chan struct{})
	var removing atomic.Int32
	meets := func(c *fakeCall) error {
		if removing.Add(1) == 2 {
			close(both)
		}
		return waitsFor(both)(c)
	}
	w.stage1.on(abi.AppRm, meets)
	var deletes sync.WaitGroup
	for _, id := range []string{"a", "b"} {
		if err := w.Kill(t.Context(), AppID(id), "", 9, false); err != nil {
			t.Fatal(err)
		}
		w.mustWait(id, "")
		deletes.Go(func() {
			if _, err := w.Delete(t.Context(), AppID(id), ""); err != nil {
				t.Error(err)
			}
		})
	}
	deletes.Wait()
	if dirs := append(w.podDirs("run"), w.podDirs("exited-garbage")...); len(dirs) > 0 {
		t.Errorf("without an app the pod goes on: %q", dirs)
	}
	w.mustCreate("c", "exit 0") // in a new session
	w.mustDelete("c", "")
}

// ids notes whether the id of an app is taken when its deletion is published.
type ids struct {
	recorder
	pod   *Pod
	taken bool
}

func (i *ids) Publish(e Event) {
	if e.Kind == EventDeleted {
		i.taken = !i.pod.Empty("")
	}
	i.recorder.Publish(e)
}

// A new app with the same id has no event before the deletion of the old one was
// published.
func TestAnIdIsFreeOnlyAfterTheEventOfItsDeletion(t *testing.T) {
	w := newWorld(t)
	events := &ids{}
	w.cfg.Events = events
	w.Pod = New(w.cfg)
	events.pod = w.Pod
	w.mustCreate("a", "exit 0")
	w.mustDelete("a", "")
	if !events.taken || !w.Empty("") {
		t.Errorf("at the event it is taken: %v, afterwards the pod is empty: %v", events.taken, w.Empty(""))
	}
}
