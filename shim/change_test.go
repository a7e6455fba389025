package shim

import (
	"reflect"
	"slices"
	"testing"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// requirements.md#T7
func TestPauseAndResumeArePublished(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.sink.next("/tasks/create")
	_, err := call[emptypb.Empty](b, "Pause", &task.PauseRequest{ID: "a"})
	wantCode(t, err, codes.FailedPrecondition, "Pause of an app that does not run")
	must[task.StartResponse](b, "Start", &task.StartRequest{ID: "a"})
	b.sink.next("/tasks/start")
	must[emptypb.Empty](b, "Pause", &task.PauseRequest{ID: "a"})
	if e := b.sink.next("/tasks/paused").(*events.TaskPaused); e.ContainerID != "a" {
		t.Error(e)
	}
	must[emptypb.Empty](b, "Resume", &task.ResumeRequest{ID: "a"})
	if e := b.sink.next("/tasks/resumed").(*events.TaskResumed); e.ContainerID != "a" {
		t.Error(e)
	}
	_, err = call[emptypb.Empty](b, "Resume", &task.ResumeRequest{ID: "a"})
	wantCode(t, err, codes.FailedPrecondition, "Resume of an app that is not paused")
}

// requirements.md#C5
func TestOOMIsPublished(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.sink.next("/tasks/create")
	b.pod.events.Publish(pod.Event{Kind: pod.EventOOM, App: "a"})
	if e := b.sink.next("/tasks/oom").(*events.TaskOOM); e.ContainerID != "a" {
		t.Error(e)
	}
}

// requirements.md#T12
func TestUpdateHandsTheResourcesToThePod(t *testing.T) {
	b := newBench(t)
	b.create("a")
	for _, url := range []string{"types.containerd.io/opencontainers/runtime-spec/1/LinuxResources", ""} {
		must[emptypb.Empty](b, "Update", &task.UpdateTaskRequest{
			ID: "a", Resources: &anypb.Any{TypeUrl: url, Value: []byte(`{"pids":{"limit":3}}`)}, Annotations: map[string]string{"x": "y"},
		})
	}
	if want := []string{`a {"pids":{"limit":3}}`, `a {"pids":{"limit":3}}`}; !slices.Equal(b.pod.updates, want) {
		t.Errorf("the pod was given %v", b.pod.updates)
	}
	_, err := call[emptypb.Empty](b, "Update", &task.UpdateTaskRequest{
		ID: "a", Resources: &anypb.Any{TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/WindowsResources", Value: []byte(`{}`)},
	})
	wantCode(t, err, codes.InvalidArgument, "Windows's")
}

// requirements.md#T8
func TestCheckpointIsTheStage1s(t *testing.T) {
	b := newBench(t)
	b.create("a")
	b.sink.next("/tasks/create")
	opts, err := packed(&options.CheckpointOptions{
		Exit: true, OpenTcp: true, ExternalUnixSockets: true, Terminal: true, FileLocks: true,
		EmptyNamespaces: []string{"network"}, CgroupsMode: "soft",
	})
	if err != nil {
		t.Fatal(err)
	}
	req := &task.CheckpointTaskRequest{ID: "a", Path: "/cp", Options: opts}
	_, err = call[emptypb.Empty](b, "Checkpoint", req)
	wantCode(t, err, codes.Unimplemented, "a stage1 that cannot")

	var got abi.Checkpoint
	b.pod.onCheckpoint = func(c abi.Checkpoint) { got = c }
	must[emptypb.Empty](b, "Checkpoint", req)
	want := abi.Checkpoint{
		Path: "/cp", Exit: true, OpenTCP: true, ExternalUnixSockets: true, Terminal: true, FileLocks: true,
		EmptyNamespaces: []string{"network"}, CgroupsMode: "soft",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the pod was given %+v, want %+v", got, want)
	}
	if e := b.sink.next("/tasks/checkpointed").(*events.TaskCheckpointed); e.ContainerID != "a" || e.Checkpoint != "/cp" {
		t.Error(e)
	}
	_, err = call[emptypb.Empty](b, "Checkpoint", &task.CheckpointTaskRequest{ID: "a", Options: &anypb.Any{TypeUrl: "x.Options"}})
	wantCode(t, err, codes.InvalidArgument, "unknown options")
}

// requirements.md#T8
func TestCreateFromACheckpointIsTheStage1sToo(t *testing.T) {
	b := newBench(t)
	must[task.CreateTaskResponse](b, "Create", &task.CreateTaskRequest{ID: "a", Bundle: bundle(t), Checkpoint: "/cp"})
	if got := b.pod.config["a"].Checkpoint; got != "/cp" {
		t.Errorf("the pod was given %q", got)
	}
	if e := b.sink.next("/tasks/create").(*events.TaskCreate); e.Checkpoint != "/cp" {
		t.Error(e)
	}
}
