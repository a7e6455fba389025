package disk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// poststopFile exists if the poststop hooks of the app have begun to run.
const poststopFile = "poststop"

// hookLinger is how long to read the output of a hook that has ended, if a process that
// it started still has the pipe open.
const hookLinger = 200 * time.Millisecond

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
	state, err := json.Marshal(specs.State{
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
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, h.Path)
	if len(h.Args) > 0 {
		cmd.Args = h.Args
	}
	cmd.Env = append([]string{}, h.Env...) // not nil, because a nil environment means this process's
	cmd.Stdin = bytes.NewReader(state)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = hookLinger
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // the hook succeeded; do not wait for the processes that it has left
	}
	if err != nil && out.Len() > 0 {
		return fmt.Errorf("%w: %.400s", err, strings.TrimSpace(abi.Printable(out.String())))
	}
	return err
}
