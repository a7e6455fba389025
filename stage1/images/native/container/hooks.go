package container

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// run executes the hooks of one kind, one after the other, in the namespaces, root and
// cgroup of this process. It stops at the first failure.
func (h *hooks) run(kind string, list []specs.Hook, status specs.ContainerState) error {
	if len(list) == 0 {
		return nil
	}
	state := encodeState(h.State, status, os.Getpid())
	for i, hook := range list {
		output, err := runHook(hook, state)
		if err != nil {
			err = fmt.Errorf("error running %s hook #%d (%s): %w", kind, i, hook.Path, err)
			if output = bytes.TrimSpace(output); len(output) > 0 {
				err = fmt.Errorf("%w: %s", err, output)
			}
			return err
		}
	}
	return nil
}

// runHook executes one hook and returns the end of its output. Files in memory are its
// stdio, so no goroutine has to copy the output and the hook cannot block on it.
func runHook(h specs.Hook, state []byte) ([]byte, error) {
	stdin, err := proc.Memory("state", state)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	output, err := proc.Memory("output", nil)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	args := h.Args
	if len(args) == 0 {
		args = []string{h.Path}
	}
	env := h.Env
	if env == nil {
		env = []string{} // not nil, because a nil environment means this process's
	}
	p, err := os.StartProcess(h.Path, args, &os.ProcAttr{Env: env, Files: []*os.File{stdin, output, output}})
	if err != nil {
		return nil, err
	}
	err = waitHook(p, h.Timeout)
	return tail(output), err
}

// waitHook waits for a hook, and kills it after timeout seconds.
func waitHook(p *os.Process, timeout *int) error {
	expired := make(chan struct{})
	if timeout != nil {
		timer := time.AfterFunc(time.Duration(*timeout)*time.Second, func() {
			close(expired)
			_ = p.Kill()
		})
		defer timer.Stop()
	}
	state, err := p.Wait()
	if err != nil {
		return err
	}
	select {
	case <-expired:
		return fmt.Errorf("did not end within %d seconds", *timeout)
	default:
	}
	if !state.Success() {
		return errors.New(state.String())
	}
	return nil
}

// tail returns the end of a file.
func tail(f *os.File) []byte {
	const most = 2048
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil
	}
	b := make([]byte, min(size, most))
	n, _ := f.ReadAt(b, size-int64(len(b)))
	return b[:n]
}
