package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	rkt "github.com/rkt/containerd-shim-rkt-v1/options"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// requirements.md#N8
func TestTheServiceAnswersToBothNames(t *testing.T) {
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

// requirements.md#T1
func TestCreateHandsEverythingToThePodAndPublishesIt(t *testing.T) {
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
	if c.Bundle != req.Bundle || string(c.Spec.Text) != `{"ociVersion":"1.2.0"}` || c.Rootfs.Empty() ||
		(c.Options != abi.Options{NoPivotRoot: true, NoNewKeyring: true}) {
		t.Errorf("the pod was given %+v", c)
	}
	e := b.sink.next("/tasks/create").(*events.TaskCreate)
	want := &events.TaskCreate{ContainerID: "a", Bundle: req.Bundle, Rootfs: req.Rootfs, IO: &events.TaskIO{Stdout: out}, Pid: resp.Pid}
	if !proto.Equal(e, want) {
		t.Errorf("event %v, want %v", e, want)
	}
}

// requirements.md#T1
func TestAnIdIsFreeAgainAfterAFailedCreateAndAfterDelete(t *testing.T) {
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

// requirements.md#T1
func TestCreateRefusesWhatItCannotDo(t *testing.T) {
	b := newBench(t)
	for what, req := range map[string]*task.CreateTaskRequest{
		"no id":                                {Bundle: bundle(t)},
		"a relative bundle":                    {ID: "a", Bundle: "x"},
		"streaming (requirements.md#I7)":       {ID: "a", Bundle: bundle(t), Stdout: "ttrpc+unix:///run/s?stream_id=1"},
		"unknown options (requirements.md#O1)": {ID: "a", Bundle: bundle(t), Options: &anypb.Any{TypeUrl: "example.com/My.Options"}},
		"broken options":                       {ID: "a", Bundle: bundle(t), Options: &anypb.Any{TypeUrl: "containerd.runc.v1.Options", Value: []byte{0xff}}},
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

// requirements.md#G5
func TestASpecThatTheStage1DoesNotImplementIsNotNotImplemented(t *testing.T) {
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

// Clients show errors on terminals, and parts of an error's text may come from a stage1, a
// hook or the entrypoint of a container's image.
func TestAnErrorHasNoControlCharactersForAClientAndItsCodeStays(t *testing.T) {
	b := newBench(t)
	b.pod.onCreate = func(pod.AppConfig) error {
		return fmt.Errorf("exec: /bin/\x1b]0;title\a\u202e:\n\tno such file: %w", errdefs.ErrNotFound)
	}
	_, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t)})
	wantCode(t, err, codes.NotFound, "Create")
	want := `exec: /bin/\x1b]0;title\a\u202e:` + "\n\tno such file: not found"
	if s, _ := status.FromError(err); s.Message() != want {
		t.Errorf("text %q", s.Message())
	}
}

// containerd turns the error of a shim into its own, and that one into its client's. Each time errgrpc appends the texts of
// errors that stand beside each other.
func TestAnErrorOfSeveralCausesReachesTheClientOnce(t *testing.T) {
	for _, cause := range []error{
		fmt.Errorf("start e: %w: %w", syscall.EAGAIN, errdefs.ErrResourceExhausted),
		errors.Join(errors.New("first"), fmt.Errorf("second: %w", errdefs.ErrResourceExhausted)),
	} {
		b := newBench(t)
		b.pod.onCreate = func(pod.AppConfig) error { return cause }
		_, err := call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t)})
		for range 2 {
			err = errgrpc.ToNative(errgrpc.ToGRPC(err))
		}
		if !errdefs.IsResourceExhausted(err) || err.Error() != cause.Error() {
			t.Errorf("the client has\n%v\nwant\n%v", err, cause)
		}
	}
}

// requirements.md#O1
func TestOptionsThatClientsSendAreAccepted(t *testing.T) {
	b := newBench(t)
	pack := func(m proto.Message, prefix string) *anypb.Any {
		a, err := packed(m)
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
		{pack(&runtimeoptions.Options{ConfigBody: []byte("NoNewKeyring = true\nIoUid = 7\n")}, ""), abi.Options{NoNewKeyring: true, IoUID: 7}},
		{pack(&rkt.Options{Stage1: "native", NoPivotRoot: true}, ""), abi.Options{NoPivotRoot: true}},
	} {
		id := fmt.Sprint("app", i)
		must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: id, Bundle: bundle(t), Options: c.in})
		if got := b.pod.config[pod.AppID(id)].Options; got != c.want {
			t.Errorf("%v: %+v, want %+v", c.in, got, c.want)
		}
	}
}

// requirements.md#O1
func TestAContainerCannotAskForAnotherStage1ThanItsPodHas(t *testing.T) {
	b := newBench(t)
	asks, err := packed(&rkt.Options{Stage1: "oci"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = call[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t), Options: asks})
	wantCode(t, err, codes.InvalidArgument, "another stage1")
	if s, _ := status.FromError(err); !strings.Contains(s.Message(), "the stage1 oci, and the pod has native") {
		t.Errorf("text %q", s.Message())
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

// requirements.md#T15
func TestConnectAnswersForEveryId(t *testing.T) {
	b := newBench(t)
	b.create("a")
	if resp := must[task.ConnectResponse](b, "Connect", &task.ConnectRequest{ID: "unknown"}); resp.TaskPid != 0 || resp.ShimPid == 0 {
		t.Errorf("unknown: %v", resp)
	}
	if resp := must[task.ConnectResponse](b, "Connect", &task.ConnectRequest{ID: "a"}); resp.TaskPid == 0 || resp.Version != "" {
		t.Errorf("known: %v", resp)
	}
}

// requirements.md#T5
func TestStateTellsWhatWasAskedForAndWhatIs(t *testing.T) {
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

// requirements.md#T6
func TestPidsNamesExecsAndRefusesAStoppedApp(t *testing.T) {
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
	wantCode(t, err, codes.FailedPrecondition, "requirements.md#R3: a stopped app")
}

// requirements.md#T9
func TestKillPassesOnAndRefusesWhatIsNoSignal(t *testing.T) {
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

// requirements.md#T4
func TestAnExecIdIsReservedWhileItIsBeingAdded(t *testing.T) {
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
	wait.For(t, "the pod is asked", entered)
	_, err := call[emptypb.Empty](b, "Exec", execRequest("a", "e"))
	wantCode(t, err, codes.AlreadyExists, "the id of an exec in flight")
	_, err = call[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a", ExecID: "e"})
	wantCode(t, err, codes.NotFound, "Delete of an exec in flight")
	_, err = call[emptypb.Empty](b, "Exec", execRequest("a", "e"))
	wantCode(t, err, codes.AlreadyExists, "the id is still reserved")
	close(leave)
	if err := wait.For(t, "the first Exec", first); err != nil {
		t.Error(err)
	}
	if c := b.pod.execs["e"]; string(c.Process.Text) != `{"args":["true"],"cwd":"/"}` {
		t.Errorf("process %s", c.Process.Text)
	}
	b.pod.onAddExec = nil
	must[task.DeleteResponse](b, "Delete", &task.DeleteRequest{ID: "a", ExecID: "e"})
	b.addExec("a", "e")
}

// requirements.md#T4
func TestASpecThatIsNoProcessIsRefused(t *testing.T) {
	b := newBench(t)
	b.create("a")
	for _, spec := range []*anypb.Any{nil, {}, {Value: []byte("[]")}, {Value: []byte(`{"args":`)}} {
		_, err := call[emptypb.Empty](b, "Exec", &task.ExecProcessRequest{ID: "a", ExecID: "e", Spec: spec})
		wantCode(t, err, codes.InvalidArgument, fmt.Sprint(spec))
	}
	_, err := call[emptypb.Empty](b, "Exec", execRequest("a", ""))
	wantCode(t, err, codes.InvalidArgument, "no id")
}

// requirements.md#T13
func TestWaitEndsWithTheProcessAndWithItsContext(t *testing.T) {
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
		if resp := wait.For(t, "Wait", got); resp.ExitStatus != 7 || resp.ExitedAt.AsTime().IsZero() {
			t.Errorf("%v", resp)
		}
	}
	if resp := must[task.WaitResponse](b, "Wait", &task.WaitRequest{ID: "a"}); resp.ExitStatus != 7 {
		t.Errorf("after the end: %v", resp)
	}
}

// requirements.md#N6
func TestOtherCallsAreAnsweredWhileCreateIsUnderWay(t *testing.T) {
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
	wait.For(t, "the pod is asked", entered)
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
	if err := wait.For(t, "the slow Create", slow); err != nil {
		t.Error(err)
	}
}

func TestASizeThatNoTerminalHasIsRefused(t *testing.T) {
	b := newBench(t)
	b.create("a")
	_, err := call[emptypb.Empty](b, "ResizePty", &task.ResizePtyRequest{ID: "a", Width: 65537, Height: 25})
	wantCode(t, err, codes.InvalidArgument, "not 65537 x 25")
}

// requirements.md#T11
func TestCloseIOIsIdempotentInEveryState(t *testing.T) {
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

// requirements.md#I6
func TestTheStreamsOfAnExecBelongToTheUserOfItsAppsOptions(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
	b := newBench(t)
	opts, err := anypb.New(&options.Options{IoUid: 1234, IoGid: 5678})
	if err != nil {
		t.Fatal(err)
	}
	must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t), Options: opts})
	var owner *syscall.Stat_t
	b.pod.onAddExec = func(c pod.ExecConfig) error {
		st, err := c.Stdio.Files()[1].Stat()
		if err == nil {
			owner = st.Sys().(*syscall.Stat_t)
		}
		return err
	}
	r := execRequest("a", "e")
	r.Stdout = "file://" + filepath.Join(t.TempDir(), "log")
	must[emptypb.Empty](b, "Exec", r)
	if owner.Uid != 1234 || owner.Gid != 5678 {
		t.Errorf("the output of the exec belongs to %d:%d", owner.Uid, owner.Gid)
	}
}
