package shim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// streams are the paths and URIs of a process's streams, as the client gave
// them.
type streams struct {
	stdin, stdout, stderr string
	terminal              bool
}

// process has the streams of an app's first process or of an exec, and the facts about it
// that State and events report. It is the process's tag: the pod keeps it and hands it back
// with states and events.
type process struct {
	streams
	owner
	stdio *stdio

	// Of an app's first process.
	rootfs     []*types.Mount // nil once TaskCreate was published
	checkpoint string         // from which the app was made
}

// processOf returns the process of a tag.
func processOf(tag any) *process {
	if p, ok := tag.(*process); ok {
		return p
	}
	return &process{} // no client has asked for this process
}

// take reserves an id for a Create or Exec. The call releases it when the pod knows the app
// or exec, or when it has failed.
func (s *Service) take(n name) (release func(), err error) {
	if err := s.ids.take(n); err != nil {
		return nil, err
	}
	if _, err := s.pod.Status(n.app, n.exec); err == nil {
		s.ids.giveBack(n)
		return nil, fmt.Errorf("%s: %w", n, errdefs.ErrAlreadyExists)
	}
	return func() { s.ids.giveBack(n) }, nil
}

// create makes an app, blocked before its exec (requirements.md#T1). If it fails, nothing
// of the app remains and its id is free again.
func (s *Service) create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if r.ID == "" || !filepath.IsAbs(r.Bundle) {
		return nil, fmt.Errorf("create container %q: the id is empty or the bundle %q is not absolute: %w", r.ID, r.Bundle, errdefs.ErrInvalidArgument)
	}
	release, err := s.take(name{app: pod.AppID(r.ID)})
	if err != nil {
		return nil, err
	}
	st, err := s.createApp(ctx, r)
	release()
	if err != nil {
		s.failed(disk.FailedStart{Step: disk.StepCreate, Options: arrived(r.Options)}, r.ID, r.Bundle, err)
		if ctx.Err() != nil {
			s.endIfUnused(ctx, r.ID)
		}
		s.appGone()
		return nil, refused(err)
	}
	return &task.CreateTaskResponse{Pid: uint32(st.PID)}, nil
}

// endIfUnused ends a service without apps after a Create whose caller has disconnected. If
// that containerd has ended, it sends no Shutdown. containerd 1.6 sends none after its
// restart either (requirements.md#R4).
func (s *Service) endIfUnused(ctx context.Context, id string) {
	if _, err := s.shutdown(ctx, &task.ShutdownRequest{ID: id}); err != nil {
		pod.Log(ctx, pod.AppID(id), "", err).Warn("end after an abandoned create")
	}
}

func (s *Service) createApp(ctx context.Context, r *task.CreateTaskRequest) (pod.Status, error) {
	id := pod.AppID(r.ID)
	opts, names, err := s.options(ctx, id, r.Options)
	if err != nil {
		return pod.Status{}, fmt.Errorf("create container %s: %w", id, err)
	}
	text, err := proc.ReadFile(filepath.Join(r.Bundle, "config.json"))
	if err != nil {
		return pod.Status{}, fmt.Errorf("create container %s: read its spec: %w", id, err)
	}
	spec, err := pod.ReadSpec(id, r.Bundle, text)
	if err != nil {
		return pod.Status{}, err
	}
	p := &process{
		streams: streams{r.Stdin, r.Stdout, r.Stderr, r.Terminal},
		owner:   owner{app: id, bundle: r.Bundle, uid: opts.IoUID, gid: opts.IoGID},
		rootfs:  r.Rootfs, checkpoint: r.Checkpoint,
	}
	p.stdio, err = s.opener.open(ctx, p.streams, p.owner)
	if err != nil {
		return pod.Status{}, fmt.Errorf("create container %s: %w", id, err)
	}
	return s.pod.CreateApp(ctx, pod.AppConfig{
		ID:       id,
		Bundle:   r.Bundle,
		Spec:     spec,
		Rootfs:   newRootfs(r.Rootfs, s.cfg.Children),
		Stdio:    p.stdio,
		Terminal: r.Terminal,
		Debug:    s.cfg.Debug,
		Options:  opts,
		Arrived:  names,
		Tag:      p,

		Checkpoint: r.Checkpoint,
	})
}

// refused replaces NotImplemented, the error for a spec that the stage1 does not
// implement. containerd takes NotImplemented for the answer of a shim that does not know
// this version of the Task API, and would try an older one (requirements.md#G5).
func refused(err error) error {
	if !errdefs.IsNotImplemented(err) {
		return err
	}
	return errdefs.ErrFailedPrecondition.WithMessage(err.Error())
}

// start runs a created app or exec (requirements.md#T2).
func (s *Service) start(ctx context.Context, r *task.StartRequest) (*task.StartResponse, error) {
	if st, err := s.pod.Status(pod.AppID(r.ID), pod.ExecID(r.ExecID)); err == nil {
		if io := processOf(st.Tag).stdio; io != nil {
			io.feed()
		}
	}
	pid, err := s.pod.Start(ctx, pod.AppID(r.ID), pod.ExecID(r.ExecID))
	if err != nil {
		if failure := (*pod.StartFailure)(nil); errors.As(err, &failure) {
			s.failed(disk.FailedStart{Step: disk.StepStart}, r.ID, s.bundleOf(r.ID), err)
		}
		if st, _ := s.pod.Status(pod.AppID(r.ID), ""); r.ExecID == "" && st.State == pod.Stopped {
			s.appEnded() // a failed start publishes no exit
		}
		return nil, err
	}
	return &task.StartResponse{Pid: uint32(pid)}, nil
}

// delete removes an app or exec that is not running (requirements.md#T3).
func (s *Service) delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	st, err := s.pod.Delete(ctx, pod.AppID(r.ID), pod.ExecID(r.ExecID))
	if err != nil {
		return nil, err
	}
	return &task.DeleteResponse{
		Pid:        uint32(st.PID),
		ExitStatus: st.Exit.Code,
		ExitedAt:   timestamp(st.Exit.At),
	}, nil
}

// exec registers a further process of an app (requirements.md#T4).
func (s *Service) exec(ctx context.Context, r *task.ExecProcessRequest) (*emptypb.Empty, error) {
	id, exec := pod.AppID(r.ID), pod.ExecID(r.ExecID)
	spec, err := pod.ReadProcess(id, exec, bytes.TrimSpace(r.Spec.GetValue()))
	if err != nil {
		return nil, err
	}
	st, err := s.pod.Status(id, "")
	if err != nil {
		return nil, err
	}
	release, err := s.take(name{id, exec})
	if err != nil {
		return nil, err
	}
	defer release()
	p := &process{streams: streams{r.Stdin, r.Stdout, r.Stderr, r.Terminal}, owner: processOf(st.Tag).owner}
	p.exec = exec
	p.stdio, err = s.opener.open(ctx, p.streams, p.owner)
	if err != nil {
		return nil, fmt.Errorf("exec %s in container %s: %w", exec, id, err)
	}
	return done(s.pod.AddExec(ctx, id, pod.ExecConfig{ID: exec, Process: spec, Stdio: p.stdio, Terminal: p.terminal, Tag: p}))
}

// kill signals a process (requirements.md#T9).
func (s *Service) kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	if r.Signal > 64 {
		return nil, fmt.Errorf("signal %d to container %s: there is no such signal: %w", r.Signal, r.ID, errdefs.ErrInvalidArgument)
	}
	if err := s.pod.Kill(ctx, pod.AppID(r.ID), pod.ExecID(r.ExecID), int(r.Signal), r.All); err != nil {
		return nil, err
	}
	return empty, nil
}

// wait blocks until a process has ended (requirements.md#T13).
func (s *Service) wait(ctx context.Context, r *task.WaitRequest) (*task.WaitResponse, error) {
	exit, err := s.pod.Wait(ctx, pod.AppID(r.ID), pod.ExecID(r.ExecID))
	if err != nil {
		return nil, err
	}
	return &task.WaitResponse{ExitStatus: exit.Code, ExitedAt: timestamp(exit.At)}, nil
}

// timestamp converts a time. The zero time becomes year 1 and not nil: clients
// ask for IsZero.
func timestamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t) }
