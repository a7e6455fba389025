package shim

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// processDetails is the name of the message with which an exec is listed.
const processDetails = "containerd.runc.v1.ProcessDetails"

// statuses translates states. Creating is not listed, because the id of such an app is
// not known to clients yet.
var statuses = map[pod.State]types.Status{
	pod.Created:  types.StatusCreated,
	pod.Starting: types.StatusCreated,
	pod.Running:  types.StatusRunning,
	pod.Pausing:  types.StatusPausing,
	pod.Paused:   types.StatusPaused,
	pod.Stopped:  types.StatusStopped,
	pod.Deleted:  types.StatusStopped,
}

// state answers from memory (requirements.md#T5).
func (s *Service) state(_ context.Context, r *task.StateRequest) (*task.StateResponse, error) {
	id, exec := pod.AppID(r.ID), pod.ExecID(r.ExecID)
	st, err := s.pod.Status(id, exec)
	if err != nil {
		return nil, err
	}
	p := processOf(st.Tag)
	return &task.StateResponse{
		ID:         processID(r.ID, r.ExecID),
		ExecID:     r.ExecID,
		Bundle:     p.bundle,
		Pid:        uint32(st.PID),
		Status:     statuses[st.State],
		Stdin:      p.stdin,
		Stdout:     p.stdout,
		Stderr:     p.stderr,
		Terminal:   p.terminal,
		ExitStatus: st.Exit.Code,
		ExitedAt:   timestamp(st.Exit.At),
	}, nil
}

// processID returns containerd's id of a process: the exec's id, or for an app's first
// process the container's.
func processID(id, exec string) string {
	if exec != "" {
		return exec
	}
	return id
}

// pids lists the processes of an app (requirements.md#T6). The list is never empty: after
// a restart containerd takes an empty list for a task that was never created, and deletes
// the task (requirements.md#R3). If an app's last process is just ending, the list has
// the app's first process. Some releases of containerd treat an error like an empty list;
// for them the list of an ended app has its first process, too.
func (s *Service) pids(ctx context.Context, r *task.PidsRequest) (*task.PidsResponse, error) {
	id := pod.AppID(r.ID)
	infos, err := s.pod.Pids(ctx, id)
	if errdefs.IsFailedPrecondition(err) && s.cfg.DropsEnded {
		infos, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(infos) == 0 {
		st, err := s.pod.Status(id, "")
		if err != nil {
			return nil, err
		}
		infos = []pod.ProcessInfo{{PID: st.PID}}
	}
	resp := &task.PidsResponse{Processes: make([]*types.ProcessInfo, 0, len(infos))}
	for _, i := range infos {
		p := &types.ProcessInfo{Pid: uint32(i.PID)}
		if i.Exec != "" {
			if p.Info, err = anyOf(processDetails, &options.ProcessDetails{ExecID: string(i.Exec)}); err != nil {
				return nil, fmt.Errorf("list processes of container %s: %w", r.ID, err)
			}
		}
		resp.Processes = append(resp.Processes, p)
	}
	return resp, nil
}

// anyOf packs a message as containerd's typeurl does: the URL is the bare name.
func anyOf(name string, m any) (*anypb.Any, error) {
	b, err := wire.Encode(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: name, Value: b}, nil
}

// connect succeeds for unknown ids, too, because containerd uses it as a health check
// (requirements.md#T15).
func (s *Service) connect(_ context.Context, r *task.ConnectRequest) (*task.ConnectResponse, error) {
	resp := &task.ConnectResponse{ShimPid: uint32(os.Getpid())}
	if st, err := s.pod.Status(pod.AppID(r.ID), ""); err == nil {
		resp.TaskPid = uint32(st.PID)
	} else if st, err := s.pod.SandboxStatus(r.ID); err == nil {
		resp.TaskPid = uint32(st.PID)
	}
	return resp, nil
}
