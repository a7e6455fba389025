package supervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

func TestTheExitOfAnAppIsRecordedAnnouncedAndEndsItsProxy(t *testing.T) {
	w := newWorld(t)
	p := w.add("a")
	w.tell("exit a code=42 time=1.5")
	if got := w.next(); got != "exit a code=42" {
		t.Errorf("the notice is %q", got)
	}
	status, err := abi.ReadStatus(abi.StatusDir, "a", "")
	if err != nil || status.Code != 42 || status.Time.Unix() < 1000 {
		t.Errorf("the record is %+v, %v: the time is the host's", status, err)
	}
	wait.For(t, "the end of the proxy", p.proxy.Done())
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "a"}, [3]*os.File{}); err != nil {
		t.Error(err)
	}
	expectEmptyShare(t)
}

func TestAProxyThatIsKilledEndsItsAppWith137(t *testing.T) {
	w := newWorld(t)
	p := w.add("a")
	if err := p.proxy.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := w.next(); got != "exit a code=137 signal=9" {
		t.Errorf("the notice is %q", got)
	}
	wait.Until(t, "the machine is told to kill the app", func() bool { return w.guest.wasAsked(abi.AppSignal) })
	for e, want := range map[abi.Entrypoint]int{abi.AppStart: abi.ExitFailedPrecondition, abi.AppSignal: abi.ExitNotFound, abi.Enter: abi.ExitFailedPrecondition} {
		if err := w.call(t.Context(), &abi.Request{Entrypoint: e, App: "a", Exec: map[bool]string{true: "e"}[e == abi.Enter], Signal: 15}, null(t)); serve.CodeOf(err) != want {
			t.Errorf("%s of an app that has ended: %v (%d), want %d", e, err, serve.CodeOf(err), want)
		}
	}
}

// Nothing but the machine knows the end of its processes, and a client waits for the end of what it has killed.
func TestAMachineThatDoesNotTellTheEndOfWhatWasKilledIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	w.s.killTime = 100 * time.Millisecond
	for _, test := range []struct {
		app    string
		signal int
		all    bool
		answer string
		ends   bool
	}{
		{"a", int(unix.SIGKILL), false, "0", true},
		{"b", int(unix.SIGKILL), true, "0", true},
		{"c", int(unix.SIGKILL), false, strconv.Itoa(abi.ExitNotFound), true},
		{"d", int(unix.SIGTERM), false, "0", false},
	} {
		p := w.add(test.app)
		w.guest.on(abi.AppSignal, func(s *channel.Stream, _ *channel.Header) { say(s, "exit", test.answer) })
		_ = w.call(t.Context(), &abi.Request{Entrypoint: abi.AppSignal, App: test.app, Signal: test.signal, All: test.all}, [3]*os.File{})
		if !test.ends {
			wait.Still(t, "the number of ends", func() int {
				if p.hasEnded() {
					return 1
				}
				return 0
			})
			continue
		}
		if got, want := w.next(), "exit "+test.app+" code=137 signal=9"; got != want {
			t.Errorf("the notice is %q, want %q", got, want)
		}
		wait.For(t, "the end of the proxy", p.proxy.Done())
	}
}

// Stage 0 removes an app once.
func TestAnAppWhoseProxyWasKilledIsRemovedWithEverythingItHas(t *testing.T) {
	for _, hostile := range []bool{false, true} {
		w := newWorld(t)
		p := w.add("a")
		w.guest.on(abi.AppRm, func(s *channel.Stream, h *channel.Header) {
			if hostile || !w.guest.wasAsked(abi.AppStop) {
				say(s, "exit", strconv.Itoa(abi.ExitFailedPrecondition))
				return
			}
			succeed(s, h)
		})
		if err := p.proxy.Kill(); err != nil {
			t.Fatal(err)
		}
		w.next()
		err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "a"}, [3]*os.File{})
		if hostile != (err != nil) {
			t.Errorf("hostile %v: %v", hostile, err)
		}
		if _, err := w.s.app(t.Context(), "a"); serve.CodeOf(err) != abi.ExitNotFound {
			t.Errorf("hostile %v: the app is there: %v", hostile, err)
		}
		expectEmptyShare(t)
	}
}

// This process is in no cgroup with a limit of processor time.
func TestAFloodOfNoticesWaits(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	began := time.Now()
	for range 2 * maxNotices {
		w.tell("oom nosuch")
	}
	w.tell("exit a code=0")
	w.next()
	if took := time.Since(began); took < time.Second {
		t.Errorf("%d notices were heeded within %s", 2*maxNotices, took)
	}
}

func TestTheEndOfTheMachineEndsItsAppsWith137(t *testing.T) {
	w := newWorld(t)
	p := w.add("a")
	w.guest.session.Close()
	wait.For(t, "the end of the channel", w.s.Ended())
	w.s.EndAll()
	if got := w.next(); got != "exit a code=137 signal=9" {
		t.Errorf("the notice is %q", got)
	}
	wait.For(t, "the end of the proxy", p.proxy.Done())
}

func TestNoticesOfAMachineConcernItsOwnProcessesOnce(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	w.add("b")
	for range 100 {
		w.tell("exit nosuch code=1", "exit a nosuch code=1", "oom nosuch")
	}
	for range 3 * maxOOM {
		w.tell("oom a")
	}
	w.tell("exit a code=1", "exit a code=2", "exit b code=3")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "exit b code=3" {
		got = append(got, w.next())
	}
	want := append(slices.Repeat([]string{"oom a"}, maxOOM), "exit a code=1", "exit b code=3")
	if !slices.Equal(got, want) {
		t.Errorf("%d notices: %.300q", len(got), got)
	}
}

func TestWhatNoAgentSaysEndsTheMachine(t *testing.T) {
	for _, line := range []string{"", "exit", "exit a code=256", "exit a code=1\nexit b", strings.Repeat("x", channel.MaxNotice+1)} {
		w := newWorld(t)
		_ = channel.Send(w.told, channel.Notice, []byte(line))
		wait.For(t, "the end of the machine", w.s.Ended())
		if err := w.s.Why(); err == nil || !strings.Contains(err.Error(), "not") {
			t.Errorf("%.40q: %v", line, err)
		}
	}
	for name, answer := range map[string][]string{
		"ready twice":         {"ready", `{"pid":7}`, "ready", `{"pid":8}`, "exit", "0"},
		"no pid":              {"ready", `{}`, "exit", "0"},
		"an exit code of 256": {"exit", "256"},
		"another word":        {"notice", "exit a"},
		"not ready":           {"exit", "0"},
	} {
		w := newWorld(t)
		w.guest.on(abi.AppAdd, func(s *channel.Stream, _ *channel.Header) { say(s, answer...) })
		err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a"}, null(t))
		if !errors.Is(err, channel.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
		wait.For(t, "the end of the machine after "+name, w.s.Ended())
	}
}

func TestAnAgentThatIsNoneOrAnotherOneIsRefused(t *testing.T) {
	for _, text := range []string{"version 1\n1", "version 100\n", "exit 1\n0", "hello"} {
		c, g, _ := connect(t)
		go func() {
			s := <-g.hello
			_, _ = s.Write([]byte(text))
			_ = s.Close()
		}()
		if _, err := New(t.Context(), c); err == nil {
			t.Errorf("%q is an agent", text)
		}
	}
}

func TestAnAgentThatIsSilentEndsWithTheContext(t *testing.T) {
	c, _, _ := connect(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("nobody waits")
	ended := make(chan error, 1)
	go func() {
		_, err := New(ctx, c)
		ended <- err
	}()
	wait.Still(t, "attempts that have ended", func() int { return len(ended) })
	cancel(gone)
	if err := wait.For(t, "the attempt", ended); !errors.Is(err, gone) {
		t.Error(err)
	}
}

// A client may have stopped the process that it knows as the container's.
func TestAPodEndsAlsoIfAProxyIsStopped(t *testing.T) {
	w := newWorld(t)
	p := w.add("a")
	if err := p.proxy.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		w.s.EndAll()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = p.proxy.Kill()
		t.Error("EndAll waits for the proxy")
	}
	<-ended
}

func TestACallThatTheMachineDoesNotAnswerIsUndoneWithItsCaller(t *testing.T) {
	w := newWorld(t)
	begun, closed := make(chan struct{}), make(chan struct{})
	w.guest.on(abi.AppAdd, func(s *channel.Stream, _ *channel.Header) {
		close(begun)
		_, _ = s.Read(make([]byte, 1)) // the host closes its end
		close(closed)
		say(s, "exit", "1")
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the caller has gone")
	ended := make(chan error, 1)
	go func() { ended <- w.call(ctx, &abi.Request{Entrypoint: abi.AppAdd, App: "a"}, null(t)) }()
	wait.For(t, "the call", begun)
	cancel(gone)
	if err := wait.For(t, "the call", ended); !errors.Is(err, gone) {
		t.Error(err)
	}
	wait.For(t, "the end of the stream", closed)
	if n := len(w.s.Children.All()); n > 0 {
		t.Errorf("%d proxies are left", n)
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppStart, App: "a"}, [3]*os.File{}); serve.CodeOf(err) != abi.ExitNotFound {
		t.Errorf("the app is there: %v", err)
	}
}

func TestAMachineThatFloodsAnOutputWaitsForItsReader(t *testing.T) {
	w := newWorld(t)
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	files := null(t)
	files[1] = out
	numbers := w.addWith(files)
	out.Close()
	var sent atomic.Int64
	flood := w.guest.stream(numbers[1])
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			n, err := flood.Write(make([]byte, 64<<10))
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	wait.Still(t, "the host takes a megabyte that nothing reads", func() bool { return sent.Load() > 1<<20 })
	w.guest.session.Close()
	wait.For(t, "the end of the flood", ended)
}

func TestAnInputIsReadAsFarAsTheMachineTakesIt(t *testing.T) {
	w := newWorld(t)
	in, client, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	files := null(t)
	files[0] = in
	numbers := w.addWith(files)
	in.Close()
	var written atomic.Int64
	ended := make(chan error, 1)
	go func() {
		for {
			n, err := client.Write(make([]byte, 64<<10))
			written.Add(int64(n))
			if err != nil {
				ended <- err
				return
			}
		}
	}()
	wait.Still(t, "a megabyte is read that the machine does not take", func() bool { return written.Load() > 1<<20 })
	w.guest.stream(numbers[0]).Close() // the program has closed its input
	if err := wait.For(t, "the client's write", ended); !errors.Is(err, unix.EPIPE) {
		t.Error(err)
	}
}

func TestDevNullIsTheMachinesOwn(t *testing.T) {
	w := newWorld(t)
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	files := null(t)
	files[1] = out
	numbers := w.addWith(files)
	out.Close()
	if numbers[0] != channel.Null || numbers[1] == channel.Null || numbers[2] != channel.Null {
		t.Fatalf("the streams are %d", numbers)
	}
	if err := channel.Send(w.guest.stream(numbers[1]), channel.Input, []byte("x")); err != nil {
		t.Error(err)
	}
	w.tell("exit a code=7")
	if got := w.next(); got != "exit a code=7" {
		t.Errorf("the notice is %q", got)
	}
}

func TestExecsEndWithTheirExit(t *testing.T) {
	w := newWorld(t)
	w.add("a")
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.Enter, App: "a", Exec: "e"}, null(t)); err != nil {
		t.Fatal(err)
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.Enter, App: "a", Exec: "e"}, null(t)); serve.CodeOf(err) != abi.ExitFailedPrecondition {
		t.Errorf("a second exec of the same id: %v", err)
	}
	w.tell("exit a e code=7")
	if got := w.next(); got != "exit a e code=7" {
		t.Errorf("the notice is %q", got)
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppRm, App: "a"}, [3]*os.File{}); serve.CodeOf(err) != abi.ExitFailedPrecondition {
		t.Errorf("a running app is removed: %v", err)
	}
}

func TestStopEndsEverything(t *testing.T) {
	w := newWorld(t)
	p := w.add("a")
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.Stop}, [3]*os.File{}); err != nil {
		t.Fatal(err)
	}
	if !p.hasEnded() || len(w.s.Children.All()) > 0 {
		t.Error("an app is left")
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "b"}, null(t)); serve.CodeOf(err) != abi.ExitFailedPrecondition {
		t.Errorf("an app is added after stop: %v", err)
	}
	if w.s.Why() != nil {
		t.Errorf("the machine was given up: %v", w.s.Why())
	}
}

func TestAMachineWritesBackBeforeItsEndUnlessThatIsForced(t *testing.T) {
	for _, force := range []bool{false, true} {
		w := newWorld(t)
		p := w.add("a")
		asked := make(chan bool, 1)
		w.guest.on(abi.Run, func(s *channel.Stream, h *channel.Header) { // stands for all calls without an entrypoint
			asked <- h.PowerOff
			succeed(s, h)
		})
		w.s.Stop(t.Context(), force)
		if got := len(asked) == 1 && <-asked; got == force {
			t.Errorf("forced %t: the machine writes back: %t", force, got)
		}
		if !p.hasEnded() {
			t.Errorf("forced %t: an app is left", force)
		}
	}
}

func TestTwoExecsOfOneIDAreNotBothRegistered(t *testing.T) {
	a := &app{name: "a", execs: map[string]*process{}}
	s := &Supervisor{}
	first := &process{app: a, exec: "x"}
	if err := s.register(first); err != nil {
		t.Fatal(err)
	}
	if err := s.register(&process{app: a, exec: "x"}); serve.CodeOf(err) != abi.ExitFailedPrecondition || a.execs["x"] != first {
		t.Errorf("the second one: %v", err)
	}
}

func TestTheMachineCannotReplaceAPlaceForMounts(t *testing.T) {
	w := newWorld(t)
	files := w.add("a").app.files
	w.inShare(func() {
		// virtiofsd works on these paths in the machine's name.
		for name, attack := range map[string]func(dir string) error{
			"rename":  func(dir string) error { return os.Rename(filepath.Join(dir, files.dir), filepath.Join(dir, "x")) },
			"create":  func(dir string) error { return os.Mkdir(filepath.Join(dir, "b"), 0o700) },
			"link":    func(dir string) error { return os.Symlink("/", filepath.Join(dir, "b")) },
			"unmount": func(dir string) error { return os.Remove(filepath.Join(dir, files.dir)) },
		} {
			for _, dir := range []string{Roots, Volumes} {
				if err := attack("/" + dir); err == nil {
					t.Errorf("%s succeeds in %s", name, dir)
				}
			}
		}
		for name, attack := range map[string]func(dir string) error{
			"within": func(dir string) error { return os.Symlink("/", filepath.Join(dir, "1")) },
			"chmod":  func(dir string) error { return os.Chmod(dir, 0o777) },
		} {
			if err := attack(filepath.Join("/", Volumes, files.dir)); err == nil {
				t.Errorf("%s succeeds", name)
			}
		}
		if err := os.WriteFile(filepath.Join("/", Roots, files.dir, "f"), nil, 0o600); err != nil {
			t.Errorf("the app's root is not writable: %v", err)
		}
	})
	if _, err := os.Stat(filepath.Join(w.rootfs, "f")); err != nil {
		t.Errorf("the host does not see a file that the machine has made: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(Shared, Roots, files.dir)); len(entries) > 0 {
		t.Error("the app's root is mounted at the host's path of the share, too")
	}
}

// expectEmptyShare tests that nothing of an app is in the share.
func expectEmptyShare(t *testing.T) {
	t.Helper()
	for _, dir := range []string{filepath.Join(Shared, Roots), filepath.Join(Shared, Volumes)} {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v are left in the share, %v", left, err)
		}
	}
}

// The guest believes for a second what it knows of a name, so an app that is added again has other names.
func TestAnAppThatIsAddedAgainHasAnotherPlaceInTheShare(t *testing.T) {
	w := newWorld(t)
	var roots []string
	w.guest.on(abi.AppAdd, func(s *channel.Stream, h *channel.Header) {
		roots = append(roots, h.Call.Rootfs)
		if len(roots) == 1 {
			_ = channel.Send(s, channel.Exit, []byte("1"))
			return
		}
		succeed(s, h)
	})
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a"}, null(t)); err == nil {
		t.Error("an app is added that the machine has not made")
	}
	w.add("a")
	if len(roots) != 2 || roots[0] == roots[1] {
		t.Errorf("the roots are %q", roots)
	}
	if left, err := os.ReadDir(filepath.Join(Shared, Roots)); err != nil || len(left) != 1 {
		t.Errorf("the share has %v, %v", left, err)
	}
}
