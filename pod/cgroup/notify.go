package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxEventsFile is more than any file of events has.
const maxEventsFile = 4096

// awaitChange calls done with the content of an events file of version 2, now
// and whenever the kernel says that it has changed, until done returns true or
// an error, or ctx ends.
//
// The kernel announces changes to those who poll the file, so the goroutine
// sleeps in the runtime's poller. Nothing else is needed for it: inotify would
// say the same, but a user has no more than 128 instances of that.
func awaitChange(ctx context.Context, f *os.File, done func(text []byte) (bool, error)) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var buf [maxEventsFile]byte
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Pread(int(fd), buf[:], 0)
		if err != nil {
			failed = fmt.Errorf("read %s: %w", f.Name(), err)
			return true
		}
		ok, err := done(buf[:n])
		failed = err
		return ok || err != nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(failed, err)
}
