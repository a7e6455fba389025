package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// maxHookOutput is the maximum number of bytes of a hook's output in an error.
// The error has the end of the output.
const maxHookOutput = 2048

func (s *Supervisor) runHook(ctx context.Context, h specs.Hook, bundle string, state []byte) error {
	if h.Timeout != nil {
		limit := time.Duration(*h.Timeout) * time.Second
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("timed out after %s", limit))
		defer cancel()
	}
	output, inherited, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for a hook: %w", err)
	}
	tail := proc.ReadTail(output, maxHookOutput)
	defer tail.Stop()
	c, err := s.startHook(ctx, h, bundle, state, inherited)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.KillGroup() })
	status := c.Wait()
	stop()
	if status.Code == 0 {
		return nil
	}
	err = errors.New(ending(status))
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	// The pipe may still be open, because a daemon that the hook has left behind
	// has it.
	if said := bytes.TrimSpace(tail.Stop()); len(said) > 0 {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// startHook starts a hook's process. It closes output.
func (s *Supervisor) startHook(ctx context.Context, h specs.Hook, bundle string, state []byte, output *os.File) (*proc.Child, error) {
	defer output.Close()
	stdin, err := proc.Memory("native-state", state)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	dir, err := os.OpenFile(bundle, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the bundle: %w", err)
	}
	defer dir.Close()
	args := h.Args
	if len(args) == 0 {
		args = []string{h.Path}
	}
	c, err := s.fork(ctx, &fork.Process{
		Path: h.Path, Args: args, Env: h.Env, Dir: dir,
		Files: []*os.File{stdin, output, output},
	})
	if err != nil {
		return nil, err
	}
	c.Decide(nil, nil)
	return c, nil
}
