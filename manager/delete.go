package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

const (
	// deleteBudget is the time for all that `delete` does. containerd must have the
	// answer within five seconds, after which it kills `delete`.
	deleteBudget = 3500 * time.Millisecond
	// reportBudget is how long `delete` waits after deleteBudget for the error of a
	// collector, which names the step that hangs.
	reportBudget = deleteBudget / 10
	// finishBudget is the time of a child process that finishes the work of `delete`
	// after its answer. It is more than the ABI gives to stop, stop --force and gc
	// together.
	finishBudget = time.Minute
)

// Exit is how an app's first process ended.
type Exit struct {
	PID    uint32 // 0 if unknown
	Status uint32
	At     time.Time // zero if no exit was recorded: Status means nothing then
	// Rest is the argument of Finish, which must be called if Left is set. It is empty if there was
	// nothing to collect.
	Rest string
	Left bool
}

// Collector removes an app and what belongs to it, after its server has ended.
type Collector interface {
	// Collect kills the processes of the app that the bundle belongs to, undoes its
	// mounts and removes its records, and with the last app its pod. It reads the disk
	// only. It returns the recorded exit of the app, if there is one. It is idempotent:
	// if nothing is left, it returns an Exit without At and no error. It does nothing to
	// other apps. It is also called while the pod's server is running, after every
	// ordinary Delete.
	//
	// Left means that work is left which takes longer than ctx. The error is nil then if
	// nothing of the container itself is left.
	Collect(ctx context.Context, bundle, namespace, id string) (Exit, error)
	// HasHooks reports whether Collect would run hooks for this bundle. They may outlast its call, and the process that
	// has begun them must stay until they end.
	HasHooks(bundle string) bool
	// Finish does the work that Rest names. It may be called in another process, and
	// after the bundle was removed. If the server hangs, Finish kills it first.
	Finish(ctx context.Context, rest string, hangs bool) error
}

// delete removes a container whose connection was closed, and writes a DeleteResponse
// and nothing else. containerd calls it after a crash of the server, and after each
// ordinary Delete (requirements.md#D3).
func (p *Program) delete(ctx context.Context, argv0 string, f *early.Flags, stdout io.Writer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, deleteBudget, fmt.Errorf("not done after %s", deleteBudget))
	defer cancel()
	bundle, err := f.BundleDir()
	if err != nil {
		return err
	}
	socket := early.SocketOf(bundle, f)
	var exit *Exit
	answered := true
	f.Socket = socket // of children
	if early.IsCalledFrom(bundle) {
		exit, answered = askOwner(ctx, socket, f.ID, early.OwnerAnswerLimit)
	}
	collected, err := p.collect(ctx, argv0, bundle, f, answered)
	if collected.Rest != "" && (collected.Left || !answered) {
		err = errors.Join(err, finishInChild(argv0, bundle, f, collected.Rest))
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", f.ID, err)
	}
	if exit == nil {
		exit = &collected
	}
	if err := early.RemoveStaleSocket(ctx, socket); err != nil {
		return fmt.Errorf("delete %s: socket: %w", f.ID, err)
	}
	return exit.write(stdout)
}

// collect calls the collector and returns within the budget, because containerd needs an
// answer. It collects in a child process if something has to be unmounted, or hooks have to run.
func (p *Program) collect(ctx context.Context, argv0, bundle string, f *early.Flags, answered bool) (Exit, error) {
	if p.Collector == nil {
		return Exit{}, nil
	}
	if hasMounts(bundle) || p.Collector.HasHooks(bundle) {
		return collectInChild(ctx, argv0, bundle, f, answered)
	}
	type result struct {
		exit Exit
		err  error
	}
	done := make(chan result, 1)
	go func() {
		exit, err := p.Collector.Collect(ctx, bundle, f.Namespace, f.ID)
		done <- result{exit, err}
	}()
	select {
	case r := <-done:
		return r.exit, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done:
		return r.exit, r.err
	case <-time.After(reportBudget):
		return Exit{}, context.Cause(ctx)
	}
}

// write writes the answer of `delete`.
func (e Exit) write(w io.Writer) error {
	return early.Exit{PID: e.PID, Status: e.Status, At: e.At}.Write(w)
}
