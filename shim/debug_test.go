package shim

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/shim/debug"
)

// fakeDebug is a debug app whose program ends when the test says so.
type fakeDebug struct {
	dir    string
	exit   chan pod.Exit
	ended  chan struct{} // closed by the first End
	signal chan int

	mu    sync.Mutex
	ends  int
	notes []pod.DebugNote
	stdio pod.Stdio
}

var _ pod.Debug = (*fakeDebug)(nil)

func newFakeDebug(t *testing.T) *fakeDebug {
	f := &fakeDebug{dir: t.TempDir(), exit: make(chan pod.Exit, 1), ended: make(chan struct{}), signal: make(chan int, 1)}
	if err := os.WriteFile(filepath.Join(f.dir, "config.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fakeDebug) Facts() pod.DebugFacts {
	return pod.DebugFacts{ID: "rktctl-1", Dir: f.dir, CgroupsPath: "/a/b"}
}

func (f *fakeDebug) Create(_ context.Context, c pod.DebugConfig) error {
	f.stdio = c.Stdio
	return c.Stdio.Begin(nil)
}

func (f *fakeDebug) Start(context.Context) (int, error) { return 42, nil }

func (f *fakeDebug) Wait(ctx context.Context) (pod.Exit, error) {
	select {
	case e := <-f.exit:
		return e, nil
	case <-ctx.Done():
		return pod.Exit{}, ctx.Err()
	}
}

func (f *fakeDebug) Signal(_ context.Context, sig int) error {
	f.signal <- sig
	return nil
}

func (f *fakeDebug) Resize(pod.Size) error { return nil }
func (f *fakeDebug) CloseStdin() error     { return nil }

func (f *fakeDebug) Note(n pod.DebugNote) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes = append(f.notes, n)
}

func (f *fakeDebug) End(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends++; f.ends == 1 {
		close(f.ended)
		if f.stdio != nil {
			return f.stdio.Close()
		}
	}
	return nil
}

// talk is rktctl's side of the stream.
type talk struct {
	t *testing.T
	ttrpc.ClientStream
}

func (b *bench) talk(t *testing.T) *talk {
	t.Helper()
	st, err := b.client.NewStream(t.Context(), &ttrpc.StreamDesc{StreamingClient: true, StreamingServer: true}, debug.Service, debug.Stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &talk{t, st}
}

func (k *talk) send(m debug.Message) {
	k.t.Helper()
	text, err := json.Marshal(m)
	if err == nil {
		err = k.SendMsg(&anypb.Any{TypeUrl: debug.Type, Value: text})
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *talk) receive() (m debug.Message, err error) {
	var a anypb.Any
	if err := k.RecvMsg(&a); err != nil {
		return m, errgrpc.ToNative(err)
	}
	return m, json.Unmarshal(a.Value, &m)
}

// begin starts a debug app of the container a.
func (k *talk) begin() {
	k.t.Helper()
	k.send(debug.Message{Request: &debug.Request{App: "a", UID: 1000, Login: "alice", PID: 7, Image: "tools", Digest: "sha256:1"}})
	if m, err := k.receive(); err != nil || m.Prepared == nil || m.Prepared.ID != "rktctl-1" || m.Prepared.CgroupsPath != "/a/b" {
		k.t.Fatalf("%+v, %v", m, err)
	}
	k.send(debug.Message{Start: &debug.Start{}})
	if m, err := k.receive(); err != nil || m.Started == nil || m.Started.PID != 42 {
		k.t.Fatalf("%+v, %v", m, err)
	}
}

func newDebugBench(t *testing.T) (*bench, *fakeDebug) {
	b := newBench(t)
	must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t)})
	f := newFakeDebug(t)
	b.pod.onDebug = func() pod.Debug { return f }
	return b, f
}

func TestADebugAppIsRemovedBeforeItsEndIsTold(t *testing.T) {
	b, f := newDebugBench(t)
	k := b.talk(t)
	k.begin()
	k.send(debug.Message{Control: &debug.Control{Signal: 15}})
	if sig := wait.For(t, "the signal", f.signal); sig != 15 {
		t.Errorf("signal %d", sig)
	}
	f.exit <- pod.Exit{Code: 3, At: time.Now()}
	m, err := k.receive()
	if err != nil || m.Ended == nil || m.Ended.Code != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	select {
	case <-f.ended:
	default:
		t.Error("it is told before it was removed")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.notes; len(n) != 2 || n[0].Ended != nil || n[1].Ended == nil || n[1].Ended.Code != 3 || n[0].Login != "alice" || n[0].UID != 1000 || n[1].Digest != "sha256:1" {
		t.Errorf("noted: %+v", n)
	}
}

func TestADebugAppEndsWithItsStream(t *testing.T) {
	for name, hangUp := range map[string]func(b *bench, k *talk){
		"the connection": func(b *bench, _ *talk) { _ = b.client.Close() },
		"the stream":     func(_ *bench, k *talk) { _ = k.CloseSend() },
		"the server": func(b *bench, _ *talk) {
			if err := b.svc.Close(b.t.Context()); err != nil {
				b.t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, f := newDebugBench(t)
			k := b.talk(t)
			k.begin()
			hangUp(b, k)
			wait.For(t, "the end of the debug app", f.ended)
			b.svc.closeDebugs() // waits until the last note is written
			f.mu.Lock()
			defer f.mu.Unlock()
			if n := f.notes; len(n) != 2 || n[1].Ended == nil || n[1].Ended.Code != 137 {
				t.Errorf("noted: %+v", n)
			}
		})
	}
}

func TestWrongMessagesAreRefusedAndLeaveNoDebugApp(t *testing.T) {
	b, f := newDebugBench(t)
	k := b.talk(t)
	k.send(debug.Message{Start: &debug.Start{}})
	if _, err := k.receive(); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a start without a request: %v", err)
	}
	k = b.talk(t)
	if err := k.SendMsg(&anypb.Any{TypeUrl: "other", Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.receive(); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a message of another type: %v", err)
	}
	k = b.talk(t)
	k.send(debug.Message{Request: &debug.Request{App: "none"}})
	if _, err := k.receive(); !errdefs.IsNotFound(err) {
		t.Errorf("an unknown container: %v", err)
	}
	k = b.talk(t)
	k.send(debug.Message{Request: &debug.Request{App: "a"}})
	if _, err := k.receive(); err != nil {
		t.Fatal(err)
	}
	k.send(debug.Message{Start: &debug.Start{Stdout: "relative"}})
	if _, err := k.receive(); err == nil || !strings.Contains(err.Error(), "rktctl-1") {
		t.Errorf("a stream that cannot be opened: %v", err)
	}
	wait.For(t, "the end of the debug app", f.ended)
}
