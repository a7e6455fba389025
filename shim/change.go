package shim

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
)

// Names of messages that clients send in an Any, as messageName returns them.
const (
	linuxResources    = "LinuxResources" // JSON, of the OCI runtime spec
	checkpointOptions = "containerd.runc.v1.CheckpointOptions"
)

// pause stops an app (requirements.md#T7).
func (s *Service) pause(ctx context.Context, r *task.PauseRequest) (*emptypb.Empty, error) {
	return done(s.pod.Pause(ctx, pod.AppID(r.ID)))
}

// resume lets a paused app go on.
func (s *Service) resume(ctx context.Context, r *task.ResumeRequest) (*emptypb.Empty, error) {
	return done(s.pod.Resume(ctx, pod.AppID(r.ID)))
}

// update changes the limits of an app (requirements.md#T12). It ignores the annotations
// of the request.
func (s *Service) update(ctx context.Context, r *task.UpdateTaskRequest) (*emptypb.Empty, error) {
	if _, err := s.pod.Status(pod.AppID(r.ID), ""); err != nil {
		return nil, err
	}
	if name := messageName(r.Resources); name != linuxResources && name != "" {
		return nil, fmt.Errorf("update container %s: resources of type %q are not Linux's: %w", r.ID, r.Resources.GetTypeUrl(), errdefs.ErrInvalidArgument)
	}
	return done(s.pod.Update(ctx, pod.AppID(r.ID), r.Resources.GetValue()))
}

// checkpoint writes the state of an app to a directory (requirements.md#T8).
func (s *Service) checkpoint(ctx context.Context, r *task.CheckpointTaskRequest) (*emptypb.Empty, error) {
	if _, err := s.pod.Status(pod.AppID(r.ID), ""); err != nil {
		return nil, err
	}
	c, err := readCheckpoint(r.Path, r.Options)
	if err != nil {
		return nil, fmt.Errorf("checkpoint container %s: %w", r.ID, err)
	}
	return done(s.pod.Checkpoint(ctx, pod.AppID(r.ID), c))
}

// readCheckpoint reads the options of a checkpoint, which are runc's.
func readCheckpoint(path string, a *anypb.Any) (abi.Checkpoint, error) {
	c := abi.Checkpoint{Path: path}
	switch name := messageName(a); name {
	case "":
		return c, nil
	case checkpointOptions:
	default:
		return c, fmt.Errorf("options of the unknown type %q: %w", a.GetTypeUrl(), errdefs.ErrInvalidArgument)
	}
	var o options.CheckpointOptions
	if err := wire.Decode(a.GetValue(), &o); err != nil {
		return c, fmt.Errorf("options %s: %v: %w", checkpointOptions, err, errdefs.ErrInvalidArgument)
	}
	c.Exit = o.Exit
	c.OpenTCP = o.OpenTcp
	c.ExternalUnixSockets = o.ExternalUnixSockets
	c.Terminal = o.Terminal
	c.FileLocks = o.FileLocks
	c.EmptyNamespaces = o.EmptyNamespaces
	c.CgroupsMode = o.CgroupsMode
	return c, nil
}

// resizePty sets the size of a terminal. Before Start the size is kept for the terminal
// (requirements.md#T10).
func (s *Service) resizePty(_ context.Context, r *task.ResizePtyRequest) (*emptypb.Empty, error) {
	id, exec := pod.AppID(r.ID), pod.ExecID(r.ExecID)
	size, err := pod.NewSize(uint64(r.Width), uint64(r.Height))
	if err != nil {
		return nil, fmt.Errorf("resize the terminal of %s: %w", name{id, exec}, err)
	}
	if err := s.pod.Resize(id, exec, size); err != nil {
		return nil, err
	}
	return empty, nil
}

// closeIO ends a process's input (requirements.md#T11).
func (s *Service) closeIO(_ context.Context, r *task.CloseIORequest) (*emptypb.Empty, error) {
	id, exec := pod.AppID(r.ID), pod.ExecID(r.ExecID)
	if !r.Stdin {
		_, err := s.pod.Status(id, exec)
		return empty, err
	}
	if err := s.pod.CloseStdin(id, exec); err != nil {
		return nil, err
	}
	return empty, nil
}

// done returns the answer of a call without results: an empty message, or err.
func done(err error) (*emptypb.Empty, error) {
	if err != nil {
		return nil, err
	}
	return empty, nil
}
