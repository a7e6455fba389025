package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// undoLimit is how long a trial's undo steps may take, on an idle machine.
const undoLimit = 30 * time.Second

// failedLimit is how long the undo steps of a check that has failed may take, on an idle machine,
// until all of its processes are killed.
const failedLimit = 2 * time.Second

// trial is one execution of a check.
type trial struct {
	*Kit
	dir  string // of its bundles and bare pods
	undo []func(context.Context) error
	apps int // number of apps so far
	pods int
	// notes are further findings of a check.
	notes map[string]string
}

// errTimeout is the cause of the context of a check that has taken too long.
var errTimeout = errors.New("the check has not ended in its time")

// attempt runs a check and undoes its steps. If anything remains, attempt removes it and
// returns an error. If the check has failed and Keep is set, kept is the directory of its
// files.
func (k *Kit) attempt(ctx context.Context, c *Check) (notes map[string]string, kept string, err error) {
	k.trials++
	t := &trial{Kit: k, dir: filepath.Join(k.dir, fmt.Sprintf("trial-%d", k.trials)), notes: map[string]string{}}
	if err := os.Mkdir(t.dir, 0o711); err != nil {
		return nil, "", err
	}
	limit, cancel := context.WithTimeoutCause(ctx, k.config.Timeout, errTimeout)
	defer cancel()
	err = caught(func() error { return c.run(limit, t) })
	if err != nil && limit.Err() != nil && !errors.Is(err, errTimeout) {
		err = fmt.Errorf("%w: %w", context.Cause(limit), err)
	}
	var keepErr error
	if k.config.Keep { // before the pods are removed
		keepErr = t.keepPods()
	}
	over := ctx
	switch {
	case limit.Err() != nil: // end must not wait any more
		over = limit
	case err != nil:
		var stop context.CancelFunc
		over, stop = context.WithTimeout(ctx, failedLimit*Pace())
		defer stop()
	}
	endErr := t.end(over, err != nil)
	if err == nil {
		err = endErr
	}
	if k.config.Keep && err != nil && ctx.Err() == nil {
		kept, endErr = t.keep(c.ID)
		err = errors.Join(err, keepErr, endErr)
	}
	return t.notes, kept, errors.Join(err, os.RemoveAll(t.dir))
}

// failure is the panic of must and try.
type failure struct{ err error }

// must returns the value of a successful call. If the call has failed, must panics and so
// ends the check, like testing's Fatal. Call it only inside caught.
func must[T any](value T, err error) T {
	try(err)
	return value
}

// try is must for a call without a value.
func try(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// caught calls a function and returns its error, or the error with which must or try has
// ended it.
func caught(do func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.err
		default:
			panic(r)
		}
	}()
	return do()
}

// end undoes the steps of the check, which may have failed, and looks for remains. Once ctx
// is done, as it is after a check that ran out of time, it does not wait for processes: it kills
// all of them until the undo steps are done.
func (t *trial) end(ctx context.Context, failed bool) error {
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		killUntil(ctx, stop)
	}()
	undone, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit*Pace())
	defer cancel()
	var err error
	for i := len(t.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, t.undo[i](undone))
	}
	close(stop)
	<-stopped
	return errors.Join(err, t.leftovers(ctx, failed))
}

// later registers an undo step.
func (t *trial) later(f func(context.Context) error) { t.undo = append(t.undo, f) }

// id returns a containerd id for the trial's next container. The id is no valid appc name.
func (t *trial) id() string {
	t.apps++
	return fmt.Sprintf("Verify_%d.%d", t.trials, t.apps)
}
