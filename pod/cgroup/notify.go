package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// maxEventsFile is more than the size of any file of events.
const maxEventsFile = 4096

// awaitChange calls done with the content of an events file of version 2, at once and
// after every change that the kernel announces, until done returns true or an error,
// or ctx ends.
//
// The kernel announces changes to pollers of the file, so the goroutine sleeps in the
// runtime's poller. inotify is not used, because a user has no more than 128
// instances of it.
func awaitChange(ctx context.Context, f *os.File, done func(text []byte) (bool, error)) error {
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	var buf [maxEventsFile]byte
	err := proc.WaitRead(f, func(fd int) error {
		n, err := unix.Pread(fd, buf[:], 0)
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Name(), err)
		}
		if ok, err := done(buf[:n]); ok || err != nil {
			return err
		}
		return unix.EAGAIN
	})
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
