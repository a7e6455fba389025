package shim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// bench is a service with a fake pod, behind ttrpc, and a fake containerd that
// takes its events.
type bench struct {
	t      *testing.T
	svc    *Service
	pod    *fakePod
	sink   *containerd
	client *ttrpc.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	checkFDs(t)
	b := &bench{t: t, sink: newContainerd(t)}
	b.sink.start()
	svc, err := New(Config{
		Namespace:     "testing",
		EventsAddress: b.sink.path,
		Children:      children,
		NewPod: func(e pod.Events) Pod {
			b.pod = newFakePod(e)
			return b.pod
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.svc = svc
	b.serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := svc.Close(ctx); err != nil {
			t.Error(err)
		}
		b.pod.mu.Lock()
		defer b.pod.mu.Unlock()
		for _, q := range b.pod.procs {
			_ = q.stdio.Close()
		}
	})
	return b
}

// serve connects a client with the service over a socket pair.
func (b *bench) serve() {
	b.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if conns[i], err = net.FileConn(f); err != nil {
			b.t.Fatal(err)
		}
		_ = f.Close()
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		b.t.Fatal(err)
	}
	b.svc.Register(srv)
	l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- conns[0]
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(context.Background(), l)
	}()
	b.client = ttrpc.NewClient(conns[1])
	b.t.Cleanup(func() {
		_ = b.client.Close()
		_ = srv.Close()
		<-served
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	once   atomic.Bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	if l.once.CompareAndSwap(false, true) {
		close(l.closed)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// call makes one call.
func call[Response any](b *bench, method string, req any) (*Response, error) {
	b.t.Helper()
	resp := new(Response)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := b.client.Call(ctx, serviceV3, method, req, resp)
	return resp, err
}

// must makes one call that has to succeed.
func must[Response any](b *bench, method string, req any) *Response {
	b.t.Helper()
	resp, err := call[Response](b, method, req)
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	return resp
}

// bundle makes a bundle with a config.json.
func bundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"ociVersion":"1.2.0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (b *bench) create(id string) *task.CreateTaskRequest {
	b.t.Helper()
	req := &task.CreateTaskRequest{ID: id, Bundle: bundle(b.t)}
	must[task.CreateTaskResponse](b, "Create", req)
	return req
}

func (b *bench) addExec(id, exec string) {
	b.t.Helper()
	must[emptypb.Empty](b, "Exec", execRequest(id, exec))
}

func execRequest(id, exec string) *task.ExecProcessRequest {
	return &task.ExecProcessRequest{ID: id, ExecID: exec, Spec: &anypb.Any{
		TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process",
		Value:   []byte(`{"args":["true"],"cwd":"/"}`),
	}}
}

func wantCode(t *testing.T, err error, want codes.Code, what string) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

func TestN8TheServiceAnswersToBothNames(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"containerd.task.v2.Task", "containerd.task.v3.Task"} {
		var resp task.ConnectResponse
		if err := b.client.Call(t.Context(), name, "Connect", &task.ConnectRequest{ID: "x"}, &resp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if int(resp.ShimPid) != os.Getpid() {
			t.Errorf("%s: shim pid %d", name, resp.ShimPid)
		}
	}
}

func TestEveryMethodOfTheProtocolIsServed(t *testing.T) {
	b := newBench(t)
	want := map[string]bool{}
	methods := task.File_runtime_task_v2_shim_proto.Services().Get(0).Methods()
	for i := range methods.Len() {
		want[string(methods.Get(i).Name())] = true
	}
	for name := range b.svc.methods() {
		if !want[name] {
			t.Errorf("%s is not in the protocol", name)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("not served: %v", want)
	}
}

func TestT1CreateHandsEverythingToThePodAndPublishesIt(t *testing.T) {
	b := newBench(t)
	out := mkfifo(t, "out")
	opts, err := anypb.New(&options.Options{NoPivotRoot: true, NoNewKeyring: true, IoUid: 0, IoGid: 0, BinaryName: "x"})
	if err != nil {
		t.Fatal(err)
	}
	req := &task.CreateTaskRequest{
		ID: "a", Bundle: bundle(t), Stdout: out,
		Rootfs:  []*types.Mount{{Type: "bind", Source: "/src", Options: []string{"rbind"}}},
		Options: opts,
	}
	resp := must[task.CreateTaskResponse](b, "Create", req)
	c := b.pod.config["a"]
	if c.Bundle != req.Bundle || string(c.Spec) != `{"ociVersion":"1.2.0"}` || c.Rootfs.Empty() ||
		(c.Options != abi.Options{NoPivotRoot: true, NoNewKeyring: true}) {
		t.Errorf("the pod was given %+v", c)
	}
	e := b.sink.next("/tasks/create").(*events.TaskCreate)
	want := &events.TaskCreate{ContainerID: "a", Bundle: req.Bundle, Rootfs: req.Rootfs, IO: &events.TaskIO{Stdout: out}, Pid: resp.Pid}
	if !proto.Equal(e, want) {
		t.Errorf("event %v, want %v", e, want)
	}
}

func TestT1AnIdIsFreeAgainAfterAFailedCreateAndAfterDelete(t *testing.T) {
	b := newBench(t)
	req := &task.CreateTaskRequest{ID: "a", Bundle: bundle(t)}
	b.pod.onCreate = func(pod.AppConfig) error { return fmt.Errorf("exec: \"x\": executable file not found in $PATH") }
	_, err := call[task.CreateTaskResponse](b, "Create", req)
	wantCode(t, err, codes.Unknown, "a missing program")
	if s, _ := status.FromError(err); s.Message() != `exec: "x": executable file not found in $PATH` {
		t.Errorf("the text changed: %q", s.Message())
	}
	b.pod.onCreate = nil
	for range 2 {
		must[task.CreateTaskResponse](b, "Create", req)
		_, err = call[task.CreateTaskResponse](b, "Create", req)
		wantCode(t, err, codes.AlreadyExists, "a second Create")
		must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
		_, err = call[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
		wantCode(t, err, codes.NotFound, "a second Delete")
	}
}

func TestT1CreateRefusesWhatItCannotDo(t *testing.T) {
	b := newBench(t)
	for what, req := range map[string]*task.CreateTaskRequest{
		"no id":                {Bundle: bundle(t)},
		"a relative bundle":    {ID: "a", Bundle: "x"},
		"a checkpoint":         {ID: "a", Bundle: bundle(t), Checkpoint: "/cp"},
		"streaming (I7)":       {ID: "a", Bundle: bundle(t), Stdout: "ttrpc+unix:///run/s?stream_id=1"},
		"unknown options (O1)": {ID: "a", Bundle: bundle(t), Options: &anypb.Any{TypeUrl: "example.com/My.Options"}},
		"broken options":       {ID: "a", Bundle: bundle(t), Options: &anypb.Any{TypeUrl: runcOptions, Value: []byte{0xff}}},
	} {
		_, err := call[task.CreateTaskResponse](b, "Create", req)
		wantCode(t, err, codes.InvalidArgument, what)
	}
	_, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: t.TempDir()})
	wantCode(t, err, codes.Unknown, "no config.json")
	if len(b.pod.config) != 0 {
		t.Errorf("the pod was asked for %v", b.pod.config)
	}
}

func TestG5ASpecThatTheStage1DoesNotImplementIsNotNotImplemented(t *testing.T) {
	b := newBench(t)
	text := "stage1 fly: field /linux/seccomp is not honoured: not implemented"
	b.pod.onCreate = func(pod.AppConfig) error {
		return fmt.Errorf("stage1 fly: field /linux/seccomp is not honoured: %w", errdefs.ErrNotImplemented)
	}
	_, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t)})
	wantCode(t, err, codes.FailedPrecondition, "Create")
	if s, _ := status.FromError(err); s.Message() != text {
		t.Errorf("text %q", s.Message())
	}
}

func TestO1OptionsThatClientsSendAreAccepted(t *testing.T) {
	b := newBench(t)
	pack := func(m proto.Message, prefix string) *anypb.Any {
		a, err := anyOf(m)
		if err != nil {
			t.Fatal(err)
		}
		a.TypeUrl = prefix + a.TypeUrl
		return a
	}
	toml := &runtimeoptions.Options{TypeUrl: "x", ConfigBody: []byte("BinaryName = \"\"\nSystemdCgroup = true\nFoo = 1\n")}
	for i, c := range []struct {
		in   *anypb.Any
		want abi.Options
	}{
		{nil, abi.Options{}},
		{&anypb.Any{}, abi.Options{}},
		{pack(&options.Options{}, ""), abi.Options{}},
		{pack(&options.Options{IoUid: 1, IoGid: 2, SystemdCgroup: true, Root: "/r"}, "types.containerd.io/"), abi.Options{IoUID: 1, IoGID: 2}},
		{pack(toml, ""), abi.Options{}},
		{pack(toml, "type.googleapis.com/"), abi.Options{}},
	} {
		id := fmt.Sprint("app", i)
		must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: id, Bundle: bundle(t), Options: c.in})
		if got := b.pod.config[pod.AppID(id)].Options; got != c.want {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
	}
}

func TestAnUnknownIdIsNotFoundForEveryCallButConnectAndShutdown(t *testing.T) {
	b := newBench(t)
	b.create("known")
	for method, req := range map[string]any{
		"State":      &task.StateRequest{ID: "x"},
		"Start":      &task.StartRequest{ID: "x"},
		"Delete":     &task.DeleteRequest{ID: "x"},
		"Pids":       &task.PidsRequest{ID: "x"},
		"Pause":      &task.PauseRequest{ID: "x"},
		"Resume":     &task.ResumeRequest{ID: "x"},
		"Checkpoint": &task.CheckpointTaskRequest{ID: "x"},
		"Kill":       &task.KillRequest{ID: "x", Signal: 9},
		"Exec":       execRequest("x", "e"),
		"ResizePty":  &task.ResizePtyRequest{ID: "x"},
		"CloseIO":    &task.CloseIORequest{ID: "x", Stdin: true},
		"Update":     &task.UpdateTaskRequest{ID: "x"},
		"Wait":       &task.WaitRequest{ID: "x"},
		"Stats":      &task.StatsRequest{ID: "x"},
	} {
		_, err := call[emptypb.Empty](b, method, req)
		wantCode(t, err, codes.NotFound, method)
	}
	for method, req := range map[string]any{
		"State":     &task.StateRequest{ID: "known", ExecID: "x"},
		"Start":     &task.StartRequest{ID: "known", ExecID: "x"},
		"Delete":    &task.DeleteRequest{ID: "known", ExecID: "x"},
		"Kill":      &task.KillRequest{ID: "known", ExecID: "x", Signal: 9},
		"ResizePty": &task.ResizePtyRequest{ID: "known", ExecID: "x"},
		"CloseIO":   &task.CloseIORequest{ID: "known", ExecID: "x", Stdin: true},
		"Wait":      &task.WaitRequest{ID: "known", ExecID: "x"},
	} {
		_, err := call[emptypb.Empty](b, method, req)
		wantCode(t, err, codes.NotFound, method+" of an exec")
	}
}

func TestT15ConnectAnswersForEveryId(t *testing.T) {
	b := newBench(t)
	b.create("a")
	if resp := must[task.ConnectResponse](b, "Connect", &task.ConnectRequest{ID: "unknown"}); resp.TaskPid != 0 || resp.ShimPid == 0 {
		t.Errorf("unknown: %v", resp)
	}
	if resp := must[task.ConnectResponse](b, "Connect", &task.ConnectRequest{ID: "a"}); resp.TaskPid == 0 || resp.Version != "" {
		t.Errorf("known: %v", resp)
	}
}

func TestT5StateTellsWhatWasAskedForAndWhatIs(t *testing.T) {
	b := newBench(t)
	in, out := mkfifo(t, "in"), mkfifo(t, "out")
	dir := bundle(t)
	pid := must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: dir, Stdin: in, Stdout: out, Terminal: true}).Pid
	state := func(exec string) *task.StateResponse {
		return must[task.StateResponse](b, "State", &task.StateRequest{ID: "a", ExecID: exec})
	}
	s := state("")
	if s.ID != "a" || s.Bundle != dir || s.Pid != pid || s.Status != tasktypes.Status_CREATED || s.Stdin != in || s.Stdout != out || !s.Terminal || !s.ExitedAt.AsTime().IsZero() {
		t.Errorf("created: %v", s)
	}
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	b.addExec("a", "e")
	if s := state(""); s.Status != tasktypes.Status_RUNNING {
		t.Errorf("running: %v", s)
	}
	if s := state("e"); s.ID != "e" || s.ExecID != "e" || s.Pid != 0 || s.Status != tasktypes.Status_CREATED || s.Terminal {
		t.Errorf("exec: %v", s)
	}
	for st, want := range map[pod.State]tasktypes.Status{pod.Pausing: tasktypes.Status_PAUSING, pod.Paused: tasktypes.Status_PAUSED} {
		b.pod.mu.Lock()
		b.pod.procs["a/"].st.State = st
		b.pod.mu.Unlock()
		if s := state(""); s.Status != want {
			t.Errorf("%s: %v", st, s.Status)
		}
	}
	b.pod.exit("a", "", 3)
	if s := state(""); s.Status != tasktypes.Status_STOPPED || s.Pid != pid || s.ExitStatus != 3 || s.ExitedAt.AsTime().IsZero() {
		t.Errorf("stopped: %v", s)
	}
}

func TestT6PidsNamesExecsAndRefusesAStoppedApp(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.addExec("a", "e")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a", ExecID: "e"})
	resp := must[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "a"})
	if len(resp.Processes) != 2 {
		t.Fatalf("%v", resp)
	}
	for _, p := range resp.Processes {
		if p.Info == nil {
			continue
		}
		var d options.ProcessDetails
		if p.Info.TypeUrl != "containerd.runc.v1.ProcessDetails" || proto.Unmarshal(p.Info.Value, &d) != nil || d.ExecID != "e" {
			t.Errorf("%v", p)
		}
	}
	if slices.ContainsFunc(resp.Processes, func(p *tasktypes.ProcessInfo) bool { return p.Pid == 0 }) {
		t.Errorf("%v", resp)
	}
	b.pod.exit("a", "", 0)
	_, err := call[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "a"})
	wantCode(t, err, codes.FailedPrecondition, "R3: a stopped app")
}

func TestT9KillPassesOnAndRefusesWhatIsNoSignal(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.addExec("a", "e")
	_, err := call[emptypb.Empty](b, "Kill", &task.KillRequest{ID: "a", Signal: 65})
	wantCode(t, err, codes.InvalidArgument, "signal 65")
	must[emptypb.Empty](b, "Kill", &task.KillRequest{ID: "a", Signal: 64, All: true})
	must[emptypb.Empty](b, "Kill", &task.KillRequest{ID: "a", ExecID: "e", Signal: 15})
	if want := []fakeKill{{"a", "", 64, true}, {"a", "e", 15, false}}; !slices.Equal(b.pod.killed, want) {
		t.Errorf("%v, want %v", b.pod.killed, want)
	}
	b.pod.exit("a", "", 0)
	_, err = call[emptypb.Empty](b, "Kill", &task.KillRequest{ID: "a", Signal: 9})
	wantCode(t, err, codes.NotFound, "an app that has ended")
}

func TestT4AnExecIdIsReservedWhileItIsBeingAdded(t *testing.T) {
	b := newBench(t)
	b.create("a")
	entered, leave := make(chan struct{}), make(chan struct{})
	b.pod.onAddExec = func(pod.ExecConfig) error {
		close(entered)
		<-leave
		return nil
	}
	first := make(chan error, 1)
	go func() {
		_, err := call[emptypb.Empty](b, "Exec", execRequest("a", "e"))
		first <- err
	}()
	within(t, "the pod is asked", entered)
	_, err := call[emptypb.Empty](b, "Exec", execRequest("a", "e"))
	wantCode(t, err, codes.AlreadyExists, "the id of an exec in flight")
	_, err = call[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a", ExecID: "e"})
	wantCode(t, err, codes.NotFound, "Delete of an exec in flight")
	_, err = call[emptypb.Empty](b, "Exec", execRequest("a", "e"))
	wantCode(t, err, codes.AlreadyExists, "the id is still reserved")
	close(leave)
	if err := within(t, "the first Exec", first); err != nil {
		t.Error(err)
	}
	if c := b.pod.execs["e"]; string(c.Process) != `{"args":["true"],"cwd":"/"}` {
		t.Errorf("process %s", c.Process)
	}
	b.pod.onAddExec = nil
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a", ExecID: "e"})
	b.addExec("a", "e")
}

func TestT4ASpecThatIsNoProcessIsRefused(t *testing.T) {
	b := newBench(t)
	b.create("a")
	for _, spec := range []*anypb.Any{nil, {}, {Value: []byte("[]")}, {Value: []byte(`{"args":`)}} {
		_, err := call[emptypb.Empty](b, "Exec", &task.ExecProcessRequest{ID: "a", ExecID: "e", Spec: spec})
		wantCode(t, err, codes.InvalidArgument, fmt.Sprint(spec))
	}
	_, err := call[emptypb.Empty](b, "Exec", execRequest("a", ""))
	wantCode(t, err, codes.InvalidArgument, "no id")
}

func TestT13WaitEndsWithTheProcessAndWithItsContext(t *testing.T) {
	b := newBench(t)
	b.create("a")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := b.client.Call(ctx, serviceV2, "Wait", &task.WaitRequest{ID: "a"}, &task.WaitResponse{})
	if err == nil {
		t.Error("Wait returned although the app lives")
	}
	got := make(chan *task.WaitResponse, 10)
	for range cap(got) {
		go func() {
			resp, _ := call[task.WaitResponse](b, "Wait", &task.WaitRequest{ID: "a"})
			got <- resp
		}()
	}
	b.pod.exit("a", "", 7)
	for range cap(got) {
		if resp := within(t, "Wait", got); resp.ExitStatus != 7 || resp.ExitedAt.AsTime().IsZero() {
			t.Errorf("%v", resp)
		}
	}
	if resp := must[task.WaitResponse](b, "Wait", &task.WaitRequest{ID: "a"}); resp.ExitStatus != 7 {
		t.Errorf("after the end: %v", resp)
	}
}

func TestN6OtherCallsAreAnsweredWhileCreateIsUnderWay(t *testing.T) {
	b := newBench(t)
	b.create("a")
	entered, leave := make(chan struct{}), make(chan struct{})
	b.pod.onCreate = func(pod.AppConfig) error {
		close(entered)
		<-leave
		return nil
	}
	slow := make(chan error, 1)
	req := &task.CreateTaskRequest{ID: "slow", Bundle: bundle(t)}
	go func() {
		_, err := call[task.CreateTaskResponse](b, "Create", req)
		slow <- err
	}()
	within(t, "the pod is asked", entered)
	for _, id := range []string{"a", "slow"} {
		must[task.ConnectResponse](b, "Connect", &task.ConnectRequest{ID: id})
		_, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: id, Bundle: req.Bundle})
		wantCode(t, err, codes.AlreadyExists, id)
	}
	must[task.StateResponse](b, "State", &task.StateRequest{ID: "a"})
	_, err := call[task.StateResponse](b, "State", &task.StateRequest{ID: "slow"})
	wantCode(t, err, codes.NotFound, "State of an app in flight")
	must[task.PidsResponse](b, "Pids", &task.PidsRequest{ID: "a"})
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	close(leave)
	if err := within(t, "the slow Create", slow); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotSupportedYetSaysSo(t *testing.T) {
	b := newBench(t)
	b.create("a")
	for method, req := range map[string]any{
		"Pause":      &task.PauseRequest{ID: "a"},
		"Resume":     &task.ResumeRequest{ID: "a"},
		"Checkpoint": &task.CheckpointTaskRequest{ID: "a"},
		"Update":     &task.UpdateTaskRequest{ID: "a"},
		"Stats":      &task.StatsRequest{ID: "a"},
	} {
		_, err := call[emptypb.Empty](b, method, req)
		wantCode(t, err, codes.Unimplemented, method)
	}
}

func TestT11CloseIOIsIdempotentInEveryState(t *testing.T) {
	b := newBench(t)
	in := mkfifo(t, "in")
	must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t), Stdin: in})
	closeIO := func() {
		t.Helper()
		for _, stdin := range []bool{false, true, true} {
			must[emptypb.Empty](b, "CloseIO", &task.CloseIORequest{ID: "a", Stdin: stdin})
		}
		must[emptypb.Empty](b, "ResizePty", &task.ResizePtyRequest{ID: "a", Width: 1, Height: 1})
	}
	closeIO()
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	closeIO()
	b.pod.exit("a", "", 0)
	closeIO()
}

func TestT16ShutdownWaitsForTheLastApp(t *testing.T) {
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
	within(t, "Done", b.svc.Done())
	if !b.pod.closed {
		t.Error("the pod is not closed")
	}
	// E4: all that was published has been delivered by then.
	if got := b.sink.topics(); !slices.Equal(got, []string{"/tasks/create", "/tasks/create", "/tasks/delete", "/tasks/delete"}) {
		t.Errorf("events: %v", got)
	}
	_, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "late", Bundle: bundle(t)})
	wantCode(t, err, codes.Unavailable, "Create after Shutdown")
}

func TestT16ShutdownDeletesAnEndedAppThatItNames(t *testing.T) {
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
	within(t, "Done", b.svc.Done())
	if !b.pod.closed {
		t.Error("the pod is not closed")
	}
}

func TestN5ShutdownIsNotHeldUpByAContainerdThatIsAway(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.sink.next("/tasks/create")
	b.sink.stop()
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a"})
	began := time.Now()
	must[emptypb.Empty](b, "Shutdown", &task.ShutdownRequest{ID: "a"})
	within(t, "Done", b.svc.Done())
	if d := time.Since(began); d < flushLimit-time.Second {
		t.Errorf("gave up on the events after %s", d)
	}
	// What was not delivered is gone; Close says so, which the clean-up must not.
	b.svc.events.mu.Lock()
	b.svc.events.waiting = nil
	b.svc.events.mu.Unlock()
}

func TestE1EventsOfAnAppComeInTheirOrder(t *testing.T) {
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
