package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// cannotError is the error of a stage1 that reports that it cannot do something, in
// general or on this machine.
type cannotError struct{ err error }

func (e *cannotError) Error() string { return "it says that it cannot: " + e.err.Error() }

// Unwrap returns the stage1's error.
func (e *cannotError) Unwrap() error { return e.err }

// checkpointChecks check checkpoints.
func checkpointChecks() []Check {
	check := demanded(LevelUser, nil)
	return []Check{
		check("checkpoint/goes-on", "5 app/checkpoint", "an app goes on after a checkpoint, unless that is its end", checkGoesOn, abi.AppCheckpoint),
		check("checkpoint/restore", "5 app/checkpoint", "an app goes on from its checkpoint where it was, once it is started", checkRestore, abi.AppCheckpoint),
		check("checkpoint/paused", "5 app/checkpoint", "a paused app can be restored from a checkpoint, and stays paused meanwhile", checkPausedCheckpoint, abi.AppCheckpoint),
	}
}

// checkpoint writes the state of an app to a new directory.
func (t *trial) checkpoint(ctx context.Context, a *wholeApp, exit bool) (dir string, err error) {
	dir = filepath.Join(t.dir, "checkpoint")
	try(os.Mkdir(dir, 0o700))
	err = a.w.Checkpoint(ctx, a.id, abi.Checkpoint{Path: dir, Exit: exit})
	if errdefs.IsNotImplemented(err) {
		return "", &cannotError{err}
	}
	return dir, err
}

// counting makes an app that has counted to twenty.
func (w *wholePod) counting(ctx context.Context) *wholeApp {
	a := must(w.start(ctx, nil, "tick"))
	try(a.streams.out.awaitWord(ctx, "\n20\n"))
	return a
}

func checkGoesOn(ctx context.Context, t *trial) error {
	a := t.wholePod().counting(ctx)
	must(t.checkpoint(ctx, a, false))
	before := a.streams.out.now()
	if _, err := a.streams.out.await(ctx, func(now string) bool { return len(now) > len(before)+20 }); err != nil {
		return fmt.Errorf("after its checkpoint: %w", err)
	}
	return nil
}

func checkRestore(ctx context.Context, t *trial) error {
	w := t.wholePod()
	a := w.counting(ctx)
	dir := must(t.checkpoint(ctx, a, true))
	if _, err := w.Wait(ctx, a.id, ""); err != nil {
		return fmt.Errorf("checkpointed with exit: %w", err)
	}
	return w.restored(ctx, dir)
}

func checkPausedCheckpoint(ctx context.Context, t *trial) error {
	w := t.wholePod()
	a := w.counting(ctx)
	try(w.Pause(ctx, a.id))
	dir := must(t.checkpoint(ctx, a, false))
	time.Sleep(settle() / 3) // for output that has not arrived yet
	before := a.streams.out.now()
	time.Sleep(settle())
	if after := a.streams.out.now(); after != before {
		return fmt.Errorf("it was paused, and after the checkpoint it has written %q", strings.TrimPrefix(after, before))
	}
	try(a.remove(ctx)) // the ABI does not require that both exist at the same time
	return w.restored(ctx, dir)
}

// restored makes an app from the checkpoint of an app that was counting.
func (w *wholePod) restored(ctx context.Context, dir string) error {
	a := must(w.restore(ctx, dir, nil, "tick"))
	time.Sleep(settle())
	if text := a.streams.out.now(); text != "" {
		return fmt.Errorf("before app/start it has written %q", text)
	}
	must(w.Start(ctx, a.id, ""))
	text := must(a.streams.out.await(ctx, func(text string) bool { return strings.Count(text, "\n") > 3 }))
	if strings.HasPrefix(text, "0\n") {
		return errors.New("it has begun anew")
	}
	return nil
}
