package rpcs

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"
)

// execID is the id of a subject's exec.
const execID = "exec"

// unknown is the state of an id that a shim has never had.
const unknown = "unknown"

// subject is the subject of a call: a task, or an exec of a task.
type subject struct {
	shim     taskapi.TTRPCTaskService
	id, exec string
	bundle   string
	// process is the process document of its execs.
	process specs.Process
}

// state is a state of a subject, with the steps that lead a created task to it.
type state struct {
	name  string
	exec  bool
	reach []step
}

type step func(context.Context, *subject) error

// states returns all states, in the order of the tables.
func states() []state {
	return []state{
		{name: unknown, reach: []step{start, forget}},
		{name: "created"},
		{name: "running", reach: []step{start}},
		{name: "paused", reach: []step{start, pause}},
		{name: "stopped", reach: []step{start, end}},
		{name: unknown, exec: true, reach: []step{start}},
		{name: "added", exec: true, reach: []step{start, add}},
		{name: "running", exec: true, reach: []step{start, add, startExec}},
		{name: "stopped", exec: true, reach: []step{start, add, startExec, endExec}},
		{name: "running, task paused", exec: true, reach: []step{start, add, startExec, pause}},
		{name: "stopped, task paused", exec: true, reach: []step{start, add, startExec, endExec, pause}},
		{name: "added, task paused", exec: true, reach: []step{start, add, pause}},
		{name: "added, task stopped", exec: true, reach: []step{start, add, end}},
	}
}

// forget gives the subject ids that the shim has never had.
func forget(_ context.Context, s *subject) error {
	s.id += "-unknown"
	return nil
}

func start(ctx context.Context, s *subject) error {
	_, err := s.shim.Start(ctx, &taskapi.StartRequest{ID: s.id})
	return err
}

func pause(ctx context.Context, s *subject) error {
	_, err := s.shim.Pause(ctx, &taskapi.PauseRequest{ID: s.id})
	return err
}

func end(ctx context.Context, s *subject) error { return s.kill(ctx, "") }

func add(ctx context.Context, s *subject) error {
	request, err := s.execRequest()
	if err != nil {
		return err
	}
	_, err = s.shim.Exec(ctx, request)
	return err
}

func startExec(ctx context.Context, s *subject) error {
	_, err := s.shim.Start(ctx, &taskapi.StartRequest{ID: s.id, ExecID: execID})
	return err
}

func endExec(ctx context.Context, s *subject) error { return s.kill(ctx, execID) }

func (s *subject) kill(ctx context.Context, exec string) error {
	if _, err := s.shim.Kill(ctx, &taskapi.KillRequest{ID: s.id, ExecID: exec, Signal: uint32(syscall.SIGKILL)}); err != nil {
		return err
	}
	_, err := s.shim.Wait(ctx, &taskapi.WaitRequest{ID: s.id, ExecID: exec})
	return err
}

func (s *subject) execRequest() (*taskapi.ExecProcessRequest, error) {
	spec, err := json.Marshal(s.process)
	if err != nil {
		return nil, fmt.Errorf("process of an exec: %w", err)
	}
	return &taskapi.ExecProcessRequest{ID: s.id, ExecID: execID, Spec: &anypb.Any{
		TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process", Value: spec,
	}}, nil
}
