package shim

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// statuses translates states. Creating is not listed, because the id of such an app is
// not known to clients yet.
var statuses = map[pod.State]tasktypes.Status{
	pod.Created:  tasktypes.Status_CREATED,
	pod.Starting: tasktypes.Status_CREATED,
	pod.Running:  tasktypes.Status_RUNNING,
	pod.Pausing:  tasktypes.Status_PAUSING,
	pod.Paused:   tasktypes.Status_PAUSED,
	pod.Stopped:  tasktypes.Status_STOPPED,
	pod.Deleted:  tasktypes.Status_STOPPED,
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
	resp := &task.PidsResponse{Processes: make([]*tasktypes.ProcessInfo, 0, len(infos))}
	for _, i := range infos {
		p := &tasktypes.ProcessInfo{Pid: uint32(i.PID)}
		if i.Exec != "" {
			if p.Info, err = anyOf(&options.ProcessDetails{ExecID: string(i.Exec)}); err != nil {
				return nil, fmt.Errorf("list processes of container %s: %w", r.ID, err)
			}
		}
		resp.Processes = append(resp.Processes, p)
	}
	return resp, nil
}

// anyOf packs a message as containerd's typeurl does: the URL is the bare name.
func anyOf(m proto.Message) (*anypb.Any, error) {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: b}, nil
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
