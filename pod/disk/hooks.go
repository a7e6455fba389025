package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// poststopFile exists if the poststop hooks of the app have begun to run.
const poststopFile = "poststop"

// hookLinger is how long a hook that has ended may leave its input, the state, unread.
const hookLinger = 200 * time.Millisecond

// maxHookOutput is how much of the end of a hook's output an error has, in bytes.
const maxHookOutput = 1024

// newPoststop returns the record from which the poststop hooks of a spec can be run, or
// nil.
func newPoststop(spec *specs.Spec) *poststopRecord {
	if spec == nil || spec.Hooks == nil || len(spec.Hooks.Poststop) == 0 {
		return nil
	}
	return &poststopRecord{OCIVersion: spec.Version, Annotations: spec.Annotations, Hooks: spec.Hooks.Poststop}
}

// run runs the hooks in order, in this process's namespaces. If a hook fails, the next
// one runs all the same (OCI runtime spec, lifecycle).
func (p *poststopRecord) run(ctx context.Context, id, bundle string) error {
	state, err := plainjson.Encode(specs.State{
		Version: p.OCIVersion, ID: id, Status: specs.StateStopped, Bundle: bundle, Annotations: p.Annotations,
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range p.Hooks {
		if err := runHook(ctx, h, state); err != nil {
			errs = append(errs, fmt.Errorf("poststop hook %s: %w", h.Path, err))
		}
	}
	return errors.Join(errs...)
}

func runHook(ctx context.Context, h specs.Hook, state []byte) error {
	if h.Timeout != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(*h.Timeout)*time.Second)
		defer cancel()
	}
	output, inherited, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for its output: %w", err)
	}
	defer inherited.Close()
	tail := proc.ReadTail(output, maxHookOutput)
	defer tail.Stop()
	cmd := exec.CommandContext(ctx, h.Path)
	if len(h.Args) > 0 {
		cmd.Args = h.Args
	}
	cmd.Env = append([]string{}, h.Env...) // not nil, because a nil environment means this process's
	cmd.Stdin = bytes.NewReader(state)
	cmd.Stdout, cmd.Stderr = inherited, inherited
	cmd.WaitDelay = hookLinger
	err = cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the hook succeeded; do not wait for the processes that it has left
	}
	if err == nil {
		return nil
	}
	// A process that the hook left behind may keep the pipe open.
	if said := strings.TrimSpace(abi.Printable(string(tail.Stop()))); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}
