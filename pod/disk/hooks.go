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

// poststopFile exists if the poststop hooks of the app were begun.
const poststopFile = "poststop"

// hookLinger is how long to read the output of a hook that has ended, if a process that
// it started still has the pipe open.
const hookLinger = 200 * time.Millisecond

// newPoststop returns what the poststop hooks of a spec need, or nil.
func newPoststop(spec *specs.Spec) *poststopRecord {
	if spec == nil || spec.Hooks == nil || len(spec.Hooks.Poststop) == 0 {
		return nil
	}
	return &poststopRecord{OCIVersion: spec.Version, Annotations: spec.Annotations, Hooks: spec.Hooks.Poststop}
}

// run runs the hooks in order, in this process's namespaces. A failing hook does
// not keep the next one from running (OCI runtime spec, lifecycle).
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
	cmd.Env = append([]string{}, h.Env...) // not nil, which would mean ours
	cmd.Stdin = bytes.NewReader(state)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = hookLinger
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it succeeded; what it left behind is not waited for
	}
	if err != nil && out.Len() > 0 {
		return fmt.Errorf("%w: %.400s", err, strings.TrimSpace(abi.Printable(out.String())))
	}
	return err
}
