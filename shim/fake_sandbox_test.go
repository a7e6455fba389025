package shim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// fakeSandbox is the part of a fakePod that is a sandbox.
type fakeSandbox struct {
	onCreateSandbox func(pod.SandboxConfig) error // called before the work, unless nil

	sandboxStats pod.Stats

	sandboxMu sync.Mutex
	sandbox   *pod.SandboxConfig
	status    pod.SandboxStatus
	stopped   chan struct{}
	linked    int
	grace     time.Duration
}

func (f *fakeSandbox) CreateSandbox(_ context.Context, c pod.SandboxConfig) error {
	if f.onCreateSandbox != nil {
		if err := f.onCreateSandbox(c); err != nil {
			return err
		}
	}
	f.sandboxMu.Lock()
	defer f.sandboxMu.Unlock()
	f.sandbox, f.stopped = &c, make(chan struct{})
	f.status = pod.SandboxStatus{State: pod.SandboxCreated, CreatedAt: time.Now()}
	return nil
}

func (f *fakeSandbox) findSandbox(id string) error {
	if f.sandbox == nil || f.sandbox.ID != id {
		return fmt.Errorf("sandbox %s: %w", id, errdefs.ErrNotFound)
	}
	return nil
}

func (f *fakeSandbox) StartSandbox(_ context.Context, id string) (pod.SandboxStatus, error) {
	f.sandboxMu.Lock()
	defer f.sandboxMu.Unlock()
	if f.findSandbox(id) != nil || f.status.State != pod.SandboxCreated {
		return pod.SandboxStatus{}, fmt.Errorf("start: %w", errdefs.ErrFailedPrecondition)
	}
	f.status.State, f.status.PID = pod.SandboxReady, 77
	return f.status, nil
}

func (f *fakeSandbox) SandboxStatus(id string) (pod.SandboxStatus, error) {
	f.sandboxMu.Lock()
	defer f.sandboxMu.Unlock()
	return f.status, f.findSandbox(id)
}

func (f *fakeSandbox) WaitSandbox(ctx context.Context, id string) (pod.Exit, error) {
	f.sandboxMu.Lock()
	err, stopped := f.findSandbox(id), f.stopped
	f.sandboxMu.Unlock()
	if err != nil {
		return pod.Exit{}, err
	}
	select {
	case <-stopped:
	case <-ctx.Done():
		return pod.Exit{}, ctx.Err()
	}
	st, err := f.SandboxStatus(id)
	return st.Exit, err
}

func (f *fakeSandbox) StopSandbox(_ context.Context, id string, grace time.Duration) error {
	f.sandboxMu.Lock()
	defer f.sandboxMu.Unlock()
	if err := f.findSandbox(id); err != nil {
		return err
	}
	f.grace = grace
	if f.status.State != pod.SandboxStopped {
		f.status.State, f.status.Exit = pod.SandboxStopped, pod.Exit{Code: 3, At: time.Now()}
		close(f.stopped)
	}
	return nil
}

func (f *fakeSandbox) ShutdownSandbox(ctx context.Context, id string) error {
	if err := f.StopSandbox(ctx, id, 0); err != nil {
		return err
	}
	f.sandboxMu.Lock()
	defer f.sandboxMu.Unlock()
	f.sandbox = nil
	return nil
}

func (f *fakeSandbox) SandboxStats(id string) (pod.Stats, error) {
	f.sandboxMu.Lock()
	defer f.sandboxMu.Unlock()
	return f.sandboxStats, f.findSandbox(id)
}

func (f *fakeSandbox) LinkSandbox(id string) error {
	f.sandboxMu.Lock()
	defer f.sandboxMu.Unlock()
	f.linked++
	return f.findSandbox(id)
}
