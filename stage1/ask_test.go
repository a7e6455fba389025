package stage1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// executed is a file in the pod's directory that every entrypoint except run makes when
// it is executed.
const executed = "executed"

// newAskedPod is a pod whose stage1 declares a socket, on which nothing listens yet.
func newAskedPod(t *testing.T) *fakePod {
	t.Helper()
	scripts := stage1test.Scripts{abi.AppAdd: `echo app/add >> executed; exit 1`, abi.Enter: `echo enter >> executed; sleep 1000 3>&- 4>&- & ready $!`}
	for _, e := range []abi.Entrypoint{abi.AppStart, abi.AppStop, abi.AppRm, abi.AppSignal, abi.Stop, abi.GC} {
		scripts[e] = "echo " + string(e) + " >> " + executed
	}
	return newPodOf(t, stage1test.Image{Scripts: scripts, Annotations: map[string]string{abi.AnnotationServe: "/rkt/fake.sock"}})
}

func (p *fakePod) socket() string { return filepath.Join(p.dir, RktDir, "fake.sock") }

func (p *fakePod) executions(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, executed))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// listen makes the pod's socket.
func (p *fakePod) listen(t *testing.T, mode os.FileMode) *os.File {
	t.Helper()
	dir, err := os.Open(filepath.Dir(p.socket())) // whose path an address has no room for
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(p.socket()))})
	}
	if err == nil {
		err = unix.Listen(fd, 8)
	}
	if err == nil {
		err = os.Chmod(p.socket(), mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), p.socket())
	t.Cleanup(func() { f.Close() })
	return f
}

// code is the exit code of an error that wraps one of errdefs.
func code(err error) int {
	switch {
	case err == nil:
		return 0
	case errdefs.IsNotFound(err):
		return abi.ExitNotFound
	}
	return 1
}

// answer serves calls on the pod's socket until stop is called or the test ends.
func (p *fakePod) answer(t *testing.T, dispatch func(context.Context, *serve.Asked) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listener := p.listen(t, 0o600)
	s := serve.Server{Dispatch: dispatch, Code: code, Answered: func(*serve.Asked) {}, Log: io.Discard}
	ended := make(chan struct{})
	go func() {
		s.Serve(ctx, listener)
		close(ended)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		listener.Close()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

func TestEveryCallButRunAndGCIsAskedOnTheSocket(t *testing.T) {
	p := newAskedPod(t)
	calls := make(chan abi.Request, 10)
	p.answer(t, func(_ context.Context, a *serve.Asked) error {
		calls <- *a.Request
		return nil
	})
	for _, e := range []abi.Entrypoint{abi.AppStart, abi.AppSignal, abi.AppStop, abi.AppRm, abi.Stop, abi.GC} {
		c := p.call(e)
		c.Force = e == abi.Stop
		if err := p.Invoke(t.Context(), c); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
	var asked []abi.Entrypoint
	forced := false
	for range len(calls) {
		c := <-calls
		asked, forced = append(asked, c.Entrypoint), forced || c.Force
	}
	if got := fmt.Sprint(asked); got != "[app/start app/signal app/stop app/rm stop]" || !forced {
		t.Errorf("asked were %s, stop with force %v", got, forced)
	}
	if got := p.executions(t); got != "gc\n" {
		t.Errorf("executed were %q", got)
	}
	entries, err := journal.Read(p.dir)
	if err != nil || len(entries) != 6 {
		t.Fatalf("%d journal entries, %v", len(entries), err)
	}
	for _, e := range entries {
		if e.Served != (e.Entrypoint != abi.GC) {
			t.Errorf("the journal says of %s: served %v", e.Entrypoint, e.Served)
		}
	}
}

func TestACallOnTheSocketHasTheAppsStreamsAndMakesItsProcess(t *testing.T) {
	p := newAskedPod(t)
	for _, e := range []abi.Entrypoint{abi.AppAdd, abi.Enter} {
		t.Run(string(e), func(t *testing.T) {
			child, err := children.Start([]string{"/bin/sleep", "1000"}, &os.ProcAttr{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = child.Kill(); child.Wait() }()
			_ = os.Remove(p.socket())
			p.answer(t, func(_ context.Context, a *serve.Asked) error {
				fmt.Fprintf(a.Stdio[1], "%s to stdout", a.Entrypoint)
				if _, err := a.Stdio[0].Write([]byte("x")); err != nil {
					return fmt.Errorf("stdin without a client is not /dev/null: %w", err)
				}
				a.Ready(abi.Ready{PID: child.PID(), StartTime: child.StartTime()})
				return nil
			})
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			call := p.Add
			if e == abi.Enter {
				call = p.Enter
			}
			q, err := call(t.Context(), p.call(e), [3]*os.File{1: w})
			w.Close()
			if err != nil {
				t.Fatal(err)
			}
			if q.PID != child.PID() || q.StartTime != child.StartTime() || q.Recorder != pod.RecordedByStage0 || q.Ended != nil {
				t.Errorf("got %+v", q)
			}
			if said, err := io.ReadAll(r); err != nil || string(said) != string(e)+" to stdout" {
				t.Errorf("stdout has %q, %v", said, err)
			}
		})
	}
	if got := p.executions(t); got != "" {
		t.Errorf("executed were %q", got)
	}
}

func TestAFailureOnTheSocketReadsLikeThatOfAnExecution(t *testing.T) {
	p := newAskedPod(t)
	p.answer(t, func(context.Context, *serve.Asked) error {
		return fmt.Errorf("there is no app-1\x1b[31m: %w", errdefs.ErrNotFound)
	})
	err := p.Invoke(t.Context(), p.call(abi.AppStart))
	var e *EntrypointError
	if !errors.As(err, &e) || e.Code != abi.ExitNotFound || !errdefs.IsNotFound(err) || !strings.Contains(e.Text, `there is no app-1\x1b[31m`) {
		t.Errorf("got %#v: %v", e, err)
	}
	_, err = p.Add(t.Context(), p.call(abi.AppAdd), [3]*os.File{})
	if !errors.As(err, &e) || e.Code != abi.ExitNotFound {
		t.Errorf("app/add: %v", err)
	}
}

func TestALongRequestPasses(t *testing.T) {
	p := newAskedPod(t)
	long := strings.Repeat("0123456789abcdef", 8<<16) // 8 MiB
	p.answer(t, func(_ context.Context, a *serve.Asked) error {
		var s struct{ Long string }
		if err := json.Unmarshal(a.Spec, &s); err != nil || s.Long != long {
			return fmt.Errorf("%d bytes have arrived (%v)", len(s.Long), err)
		}
		return fmt.Errorf("it is whole: %w", errdefs.ErrNotFound)
	})
	c := p.call(abi.AppAdd)
	c.Spec = readSpec(`{"long":"` + long + `"}`)
	if _, err := p.Add(t.Context(), c, [3]*os.File{}); !errdefs.IsNotFound(err) {
		t.Error(err)
	}
}

func TestWithoutASocketOfRootsAloneTheEntrypointIsExecuted(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *fakePod){
		"no socket": func(*testing.T, *fakePod) {},
		"a socket that no process listens on": func(t *testing.T, p *fakePod) {
			p.listen(t, 0o600).Close()
		},
		"a file": func(t *testing.T, p *fakePod) {
			if err := os.WriteFile(p.socket(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a socket that others may use": func(t *testing.T, p *fakePod) { refuse(t, p.listen(t, 0o660)) },
		"another user's socket": func(t *testing.T, p *fakePod) {
			refuse(t, p.listen(t, 0o600))
			if err := os.Chown(p.socket(), 65534, 65534); err != nil {
				t.Fatal(err)
			}
		},
		"a link to a socket of another program's": func(t *testing.T, p *fakePod) {
			refuse(t, p.listen(t, 0o600))
			if err := errors.Join(os.Rename(p.socket(), p.socket()+"2"), os.Symlink("fake.sock2", p.socket())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newAskedPod(t)
			prepare(t, p)
			if err := p.Invoke(t.Context(), p.call(abi.AppStart)); err != nil {
				t.Error(err)
			}
			if got := p.executions(t); got != "app/start\n" {
				t.Errorf("executed were %q", got)
			}
		})
	}
}

// A program in a pod may put another socket in the place of the one that stage 0 has used. As
// long as a process listens on that one, stage 0 calls no other.
func TestStage0KeepsToTheSocketThatItHasOpened(t *testing.T) {
	p := newAskedPod(t)
	var first, second atomic.Int32
	count := func(n *atomic.Int32) func(context.Context, *serve.Asked) error {
		return func(context.Context, *serve.Asked) error {
			n.Add(1)
			return nil
		}
	}
	invoke := func(wantFirst, wantSecond int32) {
		t.Helper()
		if err := p.Invoke(t.Context(), p.call(abi.AppStart)); err != nil {
			t.Fatal(err)
		}
		if a, b := first.Load(), second.Load(); a != wantFirst || b != wantSecond {
			t.Errorf("%d and %d calls were answered, want %d and %d", a, b, wantFirst, wantSecond)
		}
	}
	stop := p.answer(t, count(&first))
	invoke(1, 0)
	if err := os.Rename(p.socket(), p.socket()+".moved"); err != nil {
		t.Fatal(err)
	}
	refuse(t, p.listen(t, 0o600))
	invoke(2, 0)
	stop()
	if err := os.Remove(p.socket()); err != nil {
		t.Fatal(err)
	}
	p.answer(t, count(&second))
	invoke(2, 1)
	invoke(2, 2)
	if got := p.executions(t); got != "" {
		t.Errorf("executed were %q", got)
	}
}

// refuse fails the test if a client has connected to the socket when the test ends.
func refuse(t *testing.T, listener *os.File) {
	t.Cleanup(func() {
		if fd, _, err := unix.Accept(int(listener.Fd())); err == nil {
			unix.Close(fd)
			t.Error("stage 0 has connected")
		}
	})
}

// The stage1 may be killed at any moment between the request and the end of its answer. Then the call
// has failed, and is not made again.
func TestACallThatTheStage1HasSeenIsNeverMadeTwice(t *testing.T) {
	child, err := children.Start([]string{"/bin/sleep", "1000"}, &os.ProcAttr{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Kill(); child.Wait() }()
	ready := fmt.Sprintf(`{"pid":%d}`, child.PID())
	ready = fmt.Sprintf("ready %d\n%s", len(ready), ready)
	const ended = "the stage1 has ended over this call"
	for _, c := range []struct {
		when string
		call abi.Entrypoint
		read int    // bytes of the request
		said string // the answers
		want string // of the error; if it is empty, the call succeeds
	}{
		{"after the first byte", abi.AppStart, 1, "", ended},
		{"after the request", abi.AppStart, 1 << 20, "", ended},
		{"in the first line", abi.AppStart, 1 << 20, "err", ended},
		{"in the words of an error", abi.AppStart, 1 << 20, "error 9\nit ", ended},
		{"after the words", abi.AppStart, 1 << 20, "error 9\nit is odd", "it is odd: " + ended},
		{"before the exit code", abi.AppStart, 1 << 20, "exit 1\n", ended},
		{"after the exit code", abi.AppStart, 1 << 20, "exit 1\n0", ""},
		{"after the request of app/add", abi.AppAdd, 1 << 20, "", ended},
		{"in the ready line of app/add", abi.AppAdd, 1 << 20, ready[:len(ready)-1], ended},
		{"after the ready line of app/add", abi.AppAdd, 1 << 20, ready, ended},
		{"after the request of enter", abi.Enter, 1 << 20, "", ended},
		{"after the ready line of enter", abi.Enter, 1 << 20, ready, ""}, // the program runs
	} {
		t.Run(c.when, func(t *testing.T) {
			p := newAskedPod(t)
			l, err := net.FileListener(p.listen(t, 0o600))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = conn.Read(make([]byte, c.read))
				_, _ = io.WriteString(conn, c.said)
			}()
			call := p.call(c.call)
			switch c.call {
			case abi.AppAdd:
				_, err = p.Add(t.Context(), call, [3]*os.File{})
			case abi.Enter:
				_, err = p.Enter(t.Context(), call, [3]*os.File{})
			default:
				err = p.Invoke(t.Context(), call)
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if got := p.executions(t); got != "" {
				t.Errorf("executed were %q", got)
			}
		})
	}
}

func TestAtItsDeadlineACallIsUndoneAndThePodLives(t *testing.T) {
	p := newAskedPod(t)
	sup := p.run(t, p.call(abi.Run))
	undone := make(chan error, 1)
	p.answer(t, func(ctx context.Context, _ *serve.Asked) error {
		<-ctx.Done()
		undone <- context.Cause(ctx)
		return ctx.Err()
	})
	p.hurry(50 * time.Millisecond)
	p.undoLimit = 200 * time.Millisecond
	err := p.Invoke(t.Context(), p.call(abi.AppStart))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "was told to undo the call") {
		t.Errorf("got %v", err)
	}
	if err := wait.For(t, "the stage1 is told", undone); !strings.Contains(err.Error(), "the caller has gone") {
		t.Error(err)
	}
	time.Sleep(2 * p.undoLimit) // that is the time in which it must not be killed
	select {
	case <-sup.Done:
		t.Error("the supervisor was killed")
	default:
	}
}

func TestAStage1ThatDoesNotUndoACallHasLostItsPod(t *testing.T) {
	p := newAskedPod(t)
	sup := p.run(t, p.call(abi.Run))
	p.listen(t, 0o600) // connections are made, and never accepted
	p.hurry(50 * time.Millisecond)
	p.undoLimit = 50 * time.Millisecond
	c := p.call(abi.AppAdd)
	c.Spec = readSpec(`{"long":"` + strings.Repeat("x", 8<<20) + `"}`) // more than a socket has room for
	if _, err := p.Add(t.Context(), c, [3]*os.File{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	time.Sleep(2 * p.undoLimit) // a call that did not arrive whole has nothing to undo
	select {
	case <-sup.Done:
		t.Error("the supervisor was killed for a call that it has not got")
	default:
	}
	if err := p.Invoke(t.Context(), p.call(abi.AppStart)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	wait.For(t, "the end of the supervisor", sup.Done)
}
