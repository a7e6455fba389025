package shim

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// create makes an app, blocked before its exec (requirements.md#T1). On failure
// nothing of it remains and its id is free again.
func (s *Service) create(ctx context.Context, r *task.CreateTaskRequest) (*task.CreateTaskResponse, error) {
	if r.ID == "" || !filepath.IsAbs(r.Bundle) {
		return nil, fmt.Errorf("create container %q: the id is empty or the bundle %q is not absolute: %w", r.ID, r.Bundle, errdefs.ErrInvalidArgument)
	}
	a := &app{
		process: process{streams: streams{r.Stdin, r.Stdout, r.Stderr, r.Terminal}},
		id:      pod.AppID(r.ID),
		bundle:  r.Bundle,
		rootfs:  r.Rootfs,

		checkpoint: r.Checkpoint,
	}
	if err := s.apps.take(a); err != nil {
		return nil, err
	}
	st, err := s.createApp(ctx, a, r)
	if err != nil {
		s.apps.drop(a)
		if ctx.Err() != nil {
			s.endIfUnused(ctx, r.ID)
		}
		return nil, refused(err)
	}
	s.apps.known(&a.process)
	return &task.CreateTaskResponse{Pid: uint32(st.PID)}, nil
}

// endIfUnused ends a service without apps after a create whose caller has gone: a
// containerd that died asks for nothing any more, and 1.6 does not when it is
// back either (requirements.md#R4).
func (s *Service) endIfUnused(ctx context.Context, id string) {
	if _, err := s.shutdown(ctx, &task.ShutdownRequest{ID: id}); err != nil {
		log.G(ctx).WithError(err).Warn("end after an abandoned create")
	}
}

func (s *Service) createApp(ctx context.Context, a *app, r *task.CreateTaskRequest) (pod.Status, error) {
	opts, err := s.options(ctx, r.Options)
	if err != nil {
		return pod.Status{}, fmt.Errorf("create container %s: %w", a.id, err)
	}
	text, err := os.ReadFile(filepath.Join(a.bundle, "config.json"))
	if err != nil {
		return pod.Status{}, fmt.Errorf("create container %s: read its spec: %w", a.id, err)
	}
	spec, err := pod.ReadSpec(a.id, a.bundle, text)
	if err != nil {
		return pod.Status{}, err
	}
	io, err := s.opener.open(ctx, a.streams, owner{a.id, a.bundle, opts.IoUID, opts.IoGID})
	if err != nil {
		return pod.Status{}, fmt.Errorf("create container %s: %w", a.id, err)
	}
	s.apps.setStdio(&a.process, io)
	return s.pod.CreateApp(ctx, pod.AppConfig{
		ID:       a.id,
		Bundle:   a.bundle,
		Spec:     spec,
		Rootfs:   newRootfs(r.Rootfs, s.cfg.Children),
		Stdio:    io,
		Terminal: a.terminal,
		Debug:    s.cfg.Debug,
		Options:  opts,

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
	if _, p, err := s.apps.process(pod.AppID(r.ID), pod.ExecID(r.ExecID)); err == nil && p.stdio != nil {
		p.stdio.feed()
	}
	pid, err := s.pod.Start(ctx, pod.AppID(r.ID), pod.ExecID(r.ExecID))
	if err != nil {
		return nil, err
	}
	return &task.StartResponse{Pid: uint32(pid)}, nil
}

// delete removes an app or exec that is not running (requirements.md#T3).
func (s *Service) delete(ctx context.Context, r *task.DeleteRequest) (*task.DeleteResponse, error) {
	id, exec := pod.AppID(r.ID), pod.ExecID(r.ExecID)
	known := s.apps.lookup(id, exec)
	st, err := s.pod.Delete(ctx, id, exec)
	if err == nil || errdefs.IsNotFound(err) {
		s.apps.deleted(id, exec, known)
	}
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
	p, err := s.apps.takeExec(id, exec, streams{r.Stdin, r.Stdout, r.Stderr, r.Terminal})
	if err != nil {
		return nil, err
	}
	if err := s.addExec(ctx, id, exec, p, spec); err != nil {
		s.apps.dropExec(id, exec, p)
		return nil, err
	}
	s.apps.known(p)
	return empty, nil
}

func (s *Service) addExec(ctx context.Context, id pod.AppID, exec pod.ExecID, p *process, spec *spec.Process) error {
	bundle, _, err := s.apps.process(id, "")
	if err != nil {
		return err
	}
	io, err := s.opener.open(ctx, p.streams, owner{app: id, bundle: bundle})
	if err != nil {
		return fmt.Errorf("exec %s in container %s: %w", exec, id, err)
	}
	s.apps.setStdio(p, io)
	return s.pod.AddExec(ctx, id, pod.ExecConfig{ID: exec, Process: spec, Stdio: io, Terminal: p.terminal})
}

// kill signals a process (requirements.md#T9).
func (s *Service) kill(ctx context.Context, r *task.KillRequest) (*emptypb.Empty, error) {
	if r.Signal > 64 {
		return nil, fmt.Errorf("signal %d to container %s: there is none of that number: %w", r.Signal, r.ID, errdefs.ErrInvalidArgument)
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
