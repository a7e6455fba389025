package shim

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// stopLimit is how long the stop of a sandbox may take beyond the time that the client
// grants the apps. Clients set no deadline.
const stopLimit = 30 * time.Second

// States of a sandbox, as containerd's CRI names them. A sandbox is not ready until it was
// started.
const (
	sandboxReady    = "SANDBOX_READY"
	sandboxNotReady = "SANDBOX_NOTREADY"
)

// sandboxMethods has the methods of the Sandbox service.
func (s *Service) sandboxMethods() map[string]ttrpc.Method {
	return map[string]ttrpc.Method{
		"CreateSandbox":   rpc("CreateSandbox", s.createSandbox),
		"StartSandbox":    rpc("StartSandbox", s.startSandbox),
		"Platform":        rpc("Platform", s.platform),
		"StopSandbox":     rpc("StopSandbox", s.stopSandbox),
		"WaitSandbox":     rpc("WaitSandbox", s.waitSandbox),
		"SandboxStatus":   rpc("SandboxStatus", s.sandboxStatus),
		"PingSandbox":     rpc("PingSandbox", s.pingSandbox),
		"ShutdownSandbox": rpc("ShutdownSandbox", s.shutdownSandbox),
		"SandboxMetrics":  rpc("SandboxMetrics", s.sandboxMetrics),
		"UpdateSandbox":   rpc("UpdateSandbox", s.updateSandbox),
	}
}

// createSandbox makes the pod, without a process. A second call returns
// errdefs.ErrAlreadyExists, whatever its request.
func (s *Service) createSandbox(ctx context.Context, r *sandbox.CreateSandboxRequest) (*sandbox.CreateSandboxResponse, error) {
	if err := s.ids.openSandbox(r.SandboxId); err != nil {
		return nil, err
	}
	c, annotations, err := sandboxConfig(r, s.cfg.Debug)
	if err == nil {
		err = s.cfg.Stage1.Choose(annotations)
	}
	if err != nil {
		s.ids.closeSandbox()
		err = fmt.Errorf("create sandbox %q: %w", r.SandboxId, err)
		s.failed(disk.FailedStart{Step: disk.StepCreateSandbox, Annotations: annotations}, r.SandboxId, r.BundlePath, err)
		return nil, err
	}
	// Of clients, only those without containerd may ask for this: containerd ends its sandboxes.
	ends := s.cfg.EventsAddress == "" && annotations[sandbox.EndsWithApps] == "true"
	c.KeepExits = ends
	if err := s.pod.CreateSandbox(ctx, c); err != nil {
		if !errdefs.IsAlreadyExists(err) {
			s.ids.closeSandbox()
			s.failed(disk.FailedStart{Step: disk.StepCreateSandbox, Annotations: annotations}, r.SandboxId, r.BundlePath, err)
		}
		return nil, refused(err)
	}
	s.asked.Store(&c)
	s.endsWithApps.Store(ends)
	return &sandbox.CreateSandboxResponse{}, nil
}

// appEnded is called when an app has ended, or its start has failed.
func (s *Service) appEnded() {
	s.anAppEnded.Store(true)
	s.appGone()
}

// appGone is called when an app has ended, was deleted, or could not be made. If the sandbox ends with its
// apps, an app has ended and none is left that has not, appGone shuts the sandbox down in the background.
func (s *Service) appGone() {
	if !s.endsWithApps.Load() || !s.anAppEnded.Load() {
		return
	}
	s.background(func() {
		if !s.closeIfEnded() || !s.endsWithApps.CompareAndSwap(true, false) {
			return
		}
		ctx, id := context.Background(), s.asked.Load().ID
		if _, err := s.shutdownSandbox(ctx, &sandbox.ShutdownSandboxRequest{SandboxId: id}); err != nil {
			pod.Log(ctx, "", "", err).Errorf("sandbox %s: its apps have ended, and it cannot be shut down", id)
		}
	})
}

// closeIfEnded refuses further apps if all apps have ended and none is being created.
func (s *Service) closeIfEnded() (closed bool) {
	for again := true; again; {
		seen := s.ids.seen()
		if !s.pod.Ended() {
			return false
		}
		closed, again = s.ids.closeIfUnchanged(seen)
	}
	return closed
}

// startSandbox starts the process that holds the pod's namespaces. The specs of the pod's
// containers name that process's pid.
func (s *Service) startSandbox(ctx context.Context, r *sandbox.StartSandboxRequest) (*sandbox.StartSandboxResponse, error) {
	st, err := s.pod.StartSandbox(ctx, r.SandboxId)
	if err != nil {
		if c := s.asked.Load(); c != nil {
			s.failed(disk.FailedStart{Step: disk.StepStartSandbox, Annotations: c.Annotations}, r.SandboxId, c.Bundle, err)
		}
		return nil, refused(err)
	}
	resp := &sandbox.StartSandboxResponse{Pid: uint32(st.PID), CreatedAt: timestamp(st.CreatedAt)}
	if c := s.asked.Load(); c != nil {
		resp.Spec, err = packSpec(sandboxSpec(*c, st.PID))
	}
	return resp, err
}

// platform makes the links to the sandbox's files again, because containerd's CRI removes
// them when it restarts. containerd calls Platform before it makes a container of the pod,
// and so before it looks for the files that the container gets from its sandbox.
func (s *Service) platform(_ context.Context, r *sandbox.PlatformRequest) (*sandbox.PlatformResponse, error) {
	if err := s.pod.LinkSandbox(r.SandboxId); err != nil {
		return nil, err
	}
	return &sandbox.PlatformResponse{Platform: &types.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}}, nil
}

// stopSandbox ends the pod's processes, and answers when they have ended.
func (s *Service) stopSandbox(ctx context.Context, r *sandbox.StopSandboxRequest) (*sandbox.StopSandboxResponse, error) {
	grace := time.Duration(r.TimeoutSecs) * time.Second
	ctx, cancel := context.WithTimeout(ctx, grace+stopLimit)
	defer cancel()
	if err := s.pod.StopSandbox(ctx, r.SandboxId, grace); err != nil {
		return nil, err
	}
	return &sandbox.StopSandboxResponse{}, nil
}

func (s *Service) waitSandbox(ctx context.Context, r *sandbox.WaitSandboxRequest) (*sandbox.WaitSandboxResponse, error) {
	exit, err := s.pod.WaitSandbox(ctx, r.SandboxId)
	if err != nil {
		return nil, err
	}
	return &sandbox.WaitSandboxResponse{ExitStatus: exit.Code, ExitedAt: timestamp(exit.At)}, nil
}

func (s *Service) sandboxStatus(_ context.Context, r *sandbox.SandboxStatusRequest) (*sandbox.SandboxStatusResponse, error) {
	st, err := s.pod.SandboxStatus(r.SandboxId)
	if err != nil {
		return nil, err
	}
	resp := &sandbox.SandboxStatusResponse{
		SandboxId: r.SandboxId,
		Pid:       uint32(st.PID),
		State:     sandboxNotReady,
		CreatedAt: timestamp(st.CreatedAt),
	}
	if st.State == pod.SandboxReady {
		resp.State = sandboxReady
	}
	if !st.Exit.At.IsZero() {
		resp.ExitedAt = timestamp(st.Exit.At)
	}
	if r.Verbose {
		if resp.Info, err = s.sandboxInfo(st); err == nil {
			resp.Info["pid"], resp.Info["state"] = strconv.Itoa(st.PID), resp.State
		}
	}
	return resp, err
}

// pingSandbox reports whether the sandbox exists.
func (s *Service) pingSandbox(_ context.Context, r *sandbox.PingRequest) (*sandbox.PingResponse, error) {
	if _, err := s.pod.SandboxStatus(r.SandboxId); err != nil {
		return nil, err
	}
	return &sandbox.PingResponse{}, nil
}

// shutdownSandbox removes the pod, and ends the server after the answer.
func (s *Service) shutdownSandbox(ctx context.Context, r *sandbox.ShutdownSandboxRequest) (*sandbox.ShutdownSandboxResponse, error) {
	err := s.pod.ShutdownSandbox(ctx, r.SandboxId)
	if errdefs.IsNotFound(err) && s.ids.unused() && s.pod.Empty("") {
		err = nil // the sandbox's creation has failed, and the client needs no server
	}
	if errdefs.IsNotFound(err) {
		return nil, err
	}
	if err != nil { // `delete` removes the rest; containerd calls it when this server has ended
		pod.Log(ctx, "", "", err).Errorf("sandbox %s: left behind by its shutdown", r.SandboxId)
	}
	s.ids.closeSandbox()
	s.ids.close()
	s.beginEnd(ctx, "", false)
	return &sandbox.ShutdownSandboxResponse{}, nil
}

// sandboxMetrics answers with the statistics of the whole pod.
func (s *Service) sandboxMetrics(_ context.Context, r *sandbox.SandboxMetricsRequest) (*sandbox.SandboxMetricsResponse, error) {
	st, err := s.pod.SandboxStats(r.SandboxId)
	if err != nil {
		return nil, err
	}
	data, err := metrics(st)
	if err != nil {
		return nil, fmt.Errorf("statistics of sandbox %s: %w", r.SandboxId, err)
	}
	return &sandbox.SandboxMetricsResponse{Metrics: &types.Metric{
		Timestamp: timestamp(time.Now()), ID: r.SandboxId, Data: data,
	}}, nil
}
