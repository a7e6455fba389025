package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// poststopFile exists if the poststop hooks of the app have begun to run.
const poststopFile = "poststop"

// hookLimit is how long a poststop hook without a timeout of its own may run. Hooks tear down networks, so a slow one
// goes on when Delete, or delete, has been answered.
const hookLimit = 5 * time.Minute

// Hooks are the poststop hooks that this process runs. A process must not end before Wait has returned, or
// its hooks would have no limit.
type Hooks struct{ running sync.WaitGroup }

// Wait waits until all hooks have ended, which their limits guarantee.
func (h *Hooks) Wait() { h.running.Wait() }

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
// one runs all the same (OCI runtime spec, lifecycle). killed is called with the path of a hook that was killed at the
// end of its time.
func (p *poststopRecord) run(id, bundle string, killed func(path string, began time.Time, err error)) error {
	state, err := plainjson.Encode(specs.State{
		Version: p.OCIVersion, ID: id, Status: specs.StateStopped, Bundle: bundle, Annotations: p.Annotations,
	})
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range p.Hooks {
		began := time.Now()
		err := runHook(h, state)
		if err == nil {
			continue
		}
		err = fmt.Errorf("poststop hook %s: %w", h.Path, err)
		if errors.Is(err, context.DeadlineExceeded) {
			killed(h.Path, began, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// runHook runs a hook until its timeout, or hookLimit. The limits of the call that runs it do not apply.
func runHook(h specs.Hook, state []byte) error {
	limit := hookLimit
	if h.Timeout != nil {
		limit = time.Duration(*h.Timeout) * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
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
	if ctx.Err() != nil {
		err = fmt.Errorf("killed, because it has not ended within %s: %w", limit, ctx.Err())
	}
	// A process that the hook left behind may keep the pipe open.
	if said := strings.TrimSpace(abi.Printable(string(tail.Stop()))); said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}
