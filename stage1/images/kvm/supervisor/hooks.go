package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// hooks are those of an app that run on the host. The pid in their state is that of the app's
// proxy, which is in the app's network namespace.
type hooks struct {
	specs.Hooks
	state specs.State
}

func hooksOf(r *abi.Request, spec *translated) *hooks {
	h := &hooks{state: specs.State{Version: spec.Version, ID: r.Container, Bundle: r.Bundle, Annotations: spec.Annotations}}
	if spec.hooks != nil {
		h.Hooks = *spec.hooks
	}
	return h
}

type hookKind struct {
	name  string
	hooks []specs.Hook
}

// runHooks runs the hooks of one or more kinds, in order, until one fails.
func (s *Supervisor) runHooks(ctx context.Context, p *process, status specs.ContainerState, kinds ...hookKind) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errStopping) })()
	state := p.app.hooks.state
	state.Status, state.Pid = status, p.proxy.PID()
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		for i, h := range k.hooks {
			if err := s.runHook(ctx, h, state.Bundle, text); err != nil {
				return fmt.Errorf("%s hook %d (%s): %w", k.name, i, h.Path, err)
			}
		}
	}
	return nil
}

// maxHookOutput is how much of a hook's output, from its end, is in an error.
const maxHookOutput = 2048

func (s *Supervisor) runHook(ctx context.Context, h specs.Hook, bundle string, state []byte) error {
	if h.Timeout != nil {
		limit := time.Duration(*h.Timeout) * time.Second
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %s", limit))
		defer cancel()
	}
	stdin, err := proc.Memory("kvm-state", state)
	if err != nil {
		return err
	}
	defer stdin.Close()
	output, inherited, err := os.Pipe()
	if err != nil {
		return err
	}
	tail := proc.ReadTail(output, maxHookOutput)
	defer tail.Stop()
	args := h.Args
	if len(args) == 0 {
		args = []string{h.Path}
	}
	env := h.Env
	if env == nil {
		env = []string{} // not this process's
	}
	child, err := s.Children.Make(func() (int, error) {
		p, err := os.StartProcess(h.Path, args, &os.ProcAttr{
			Dir: bundle, Env: env, Files: []*os.File{stdin, inherited, inherited}, Sys: &syscall.SysProcAttr{Setpgid: true},
		})
		if err != nil {
			return 0, err
		}
		pid := p.Pid
		return pid, p.Release()
	})
	inherited.Close()
	if err != nil {
		return err
	}
	child.Decide(nil, nil)
	stop := context.AfterFunc(ctx, func() { _ = child.KillGroup() })
	status := child.Wait()
	stop()
	switch {
	case status.Code == 0:
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case status.Signal != 0:
		err = fmt.Errorf("killed by signal %d (%s)", status.Signal, syscall.Signal(status.Signal))
	default:
		err = fmt.Errorf("exit status %d", status.Code)
	}
	// A daemon that the hook has left behind may have the pipe open.
	if said := bytes.TrimSpace(tail.Stop()); len(said) > 0 {
		err = errors.Join(err, errors.New(string(said)))
	}
	return err
}
