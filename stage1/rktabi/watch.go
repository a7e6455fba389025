package rktabi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"golang.org/x/sys/unix"
)

// watch sees what happens to the files of some directories. Interface version 7
// needs none: a user may have 128 of them.
type watch struct {
	events *os.File
	names  map[string]bool // of files that were there at some time
}

// watchDirs begins to watch directories that are there.
func watchDirs(dirs ...string) (*watch, error) {
	return watchFor(unix.IN_CREATE|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO, dirs...)
}

// watchFor begins to watch for certain events.
func watchFor(events uint32, dirs ...string) (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch files of the stage1: %w", err)
	}
	w := &watch{events: os.NewFile(uintptr(fd), "inotify"), names: map[string]bool{}}
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, events|unix.IN_ONLYDIR); err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", dir, err), w.events.Close())
		}
	}
	return w, nil
}

func (w *watch) close() { _ = w.events.Close() }

// saw reports whether a file of that name was made, until the last look. It may be gone
// again.
func (w *watch) saw(name string) bool { return w.names[name] }

// note takes up the names in a read of events.
func (w *watch) note(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		size := binary.NativeEndian.Uint32(events[12:])
		events = events[unix.SizeofInotifyEvent:]
		name := events[:min(int(size), len(events))]
		events = events[len(name):]
		w.names[string(bytes.TrimRight(name, "\x00"))] = true
	}
}

// until returns nil once there says so. It asks at once, and whenever something has
// happened to one of the files. It gives up with ctx, or when ended is closed, after
// a last look: then the error is stage1.ErrEnded.
func (w *watch) until(ctx context.Context, ended <-chan struct{}, there func() (bool, error)) error {
	_ = w.events.SetReadDeadline(time.Time{})
	stop := make(chan struct{})
	stopped := make(chan struct{})
	defer func() {
		close(stop)
		<-stopped
	}()
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-ended:
		case <-stop:
			return
		}
		_ = w.events.SetReadDeadline(time.Now())
	}()
	buf := make([]byte, 4096)
	for {
		ok, err := there()
		if ok || err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, immutable.ErrNoPID) {
			return err
		}
		if n, err := w.events.Read(buf); err == nil {
			w.note(buf[:n])
			continue
		} else if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("watch files of the stage1: %w", err)
		}
		if ok, _ := there(); ok {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return stage1.ErrEnded
	}
}

// await is until for a call that is to become ready. At the deadline of ctx the call is
// killed.
func (w *watch) await(ctx context.Context, k *stage1.Call, there func() (bool, error)) error {
	err := w.until(ctx, k.Ended, there)
	if errors.Is(err, context.DeadlineExceeded) {
		return k.Hung(ctx)
	}
	return err
}
