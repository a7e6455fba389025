package stream

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Temporary reports whether an error passes: this process or the host has no descriptors, memory or space at this
// moment, or the client of a connection has gone before it was accepted.
func Temporary(err error) bool {
	for _, e := range []error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.ENOSPC, unix.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// The shortest and the longest pause of a Backoff.
const (
	shortest = 5 * time.Millisecond
	longest  = time.Second
)

// Backoff is the pause before something is tried again after a temporary error. The zero value is ready.
type Backoff struct{ pause time.Duration }

// Wait waits until the next attempt, each time twice as long as before, until a second. It returns early with the
// cause of ctx.
func (b *Backoff) Wait(ctx context.Context) error {
	b.pause = min(max(2*b.pause, shortest), longest)
	select {
	case <-time.After(b.pause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Reset is called after a success.
func (b *Backoff) Reset() { b.pause = 0 }

// Retry calls f, and again after each temporary error, until ctx ends. It returns the last error of f.
func Retry(ctx context.Context, f func() error) error {
	var pauses Backoff
	for {
		err := f()
		if !Temporary(err) || pauses.Wait(ctx) != nil {
			return err
		}
	}
}
