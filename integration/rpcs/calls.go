package rpcs

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// call is one RPC, or a form of it that shims treat differently.
type call struct {
	name string
	// exec means that the call can be made to an exec, and task that it can be made to a task.
	task, exec bool
	make       func(context.Context, *subject) error
	// ends means that the subject ends after the call. The rig then waits for that end.
	ends bool
	// known means that the call is not made to ids that the shim does not know.
	known bool
}

// asks reports whether the call is made to a subject in a state.
func (c call) asks(s state) bool {
	if s.exec {
		return c.exec
	}
	return c.task && !(c.known && s.name == unknown)
}

// calls returns all calls, in the order of the tables. Checkpoint is left out, because it
// depends on criu, which is not part of a shim.
func calls() []call {
	return []call{
		{name: "State", task: true, exec: true, make: stateOf},
		{name: "Create", task: true, known: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.Create(ctx, &taskapi.CreateTaskRequest{ID: s.id, Bundle: s.bundle})
			return err
		}},
		{name: "Start", task: true, exec: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.Start(ctx, &taskapi.StartRequest{ID: s.id, ExecID: s.exec})
			return err
		}},
		{name: "Exec", task: true, exec: true, make: add},
		{name: "Pause", task: true, make: pause},
		{name: "Resume", task: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.Resume(ctx, &taskapi.ResumeRequest{ID: s.id})
			return err
		}},
		{name: "Kill with SIGKILL", task: true, exec: true, ends: true, make: kill(syscall.SIGKILL, false)},
		{name: "Kill with SIGWINCH", task: true, exec: true, make: kill(syscall.SIGWINCH, false)},
		{name: "Kill of all", task: true, ends: true, make: kill(syscall.SIGKILL, true)},
		{name: "Pids", task: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.Pids(ctx, &taskapi.PidsRequest{ID: s.id})
			return err
		}},
		{name: "ResizePty", task: true, exec: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.ResizePty(ctx, &taskapi.ResizePtyRequest{ID: s.id, ExecID: s.exec, Width: 80, Height: 25})
			return err
		}},
		{name: "CloseIO", task: true, exec: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.CloseIO(ctx, &taskapi.CloseIORequest{ID: s.id, ExecID: s.exec, Stdin: true})
			return err
		}},
		{name: "Update", task: true, make: update},
		{name: "Stats", task: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.Stats(ctx, &taskapi.StatsRequest{ID: s.id})
			return err
		}},
		{name: "Wait", task: true, exec: true, make: wait},
		{name: "Delete", task: true, exec: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.Delete(ctx, &taskapi.DeleteRequest{ID: s.id, ExecID: s.exec})
			return err
		}},
		{name: "Connect", task: true, make: func(ctx context.Context, s *subject) error {
			_, err := s.shim.Connect(ctx, &taskapi.ConnectRequest{ID: s.id})
			return err
		}},
	}
}

func stateOf(ctx context.Context, s *subject) error {
	_, err := s.shim.State(ctx, &taskapi.StateRequest{ID: s.id, ExecID: s.exec})
	return err
}

func kill(signal syscall.Signal, all bool) func(context.Context, *subject) error {
	return func(ctx context.Context, s *subject) error {
		_, err := s.shim.Kill(ctx, &taskapi.KillRequest{ID: s.id, ExecID: s.exec, Signal: uint32(signal), All: all})
		return err
	}
}

func update(ctx context.Context, s *subject) error {
	shares := uint64(512)
	b, err := json.Marshal(specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: &shares}})
	if err != nil {
		return err
	}
	_, err = s.shim.Update(ctx, &taskapi.UpdateTaskRequest{ID: s.id, Resources: &anypb.Any{
		TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources", Value: b,
	}})
	return err
}

// errWaits is the answer of a Wait that is still waiting.
var errWaits = errors.New("it waits")

func wait(ctx context.Context, s *subject) error {
	ctx, cancel := context.WithTimeout(ctx, waits)
	defer cancel()
	_, err := s.shim.Wait(ctx, &taskapi.WaitRequest{ID: s.id, ExecID: s.exec})
	if ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded {
		return errWaits
	}
	return err
}

// processOf returns the process of a bundle's spec. Execs are copies of it.
func processOf(bundle string) (specs.Process, error) {
	var spec specs.Spec
	b, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		return specs.Process{}, err
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		return specs.Process{}, err
	}
	return *spec.Process, nil
}
