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

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// watch waits for changes of files in some directories. Only the rkt ABI needs it, because
// a user may have only 128 inotify instances.
type watch struct {
	events *os.File
	names  map[string]bool // names of the files that have had events
}

// watchDirs begins to watch directories of a pod for new and changed files. It follows no links.
func watchDirs(pod string, dirs ...string) (*watch, error) {
	var paths []string
	for _, d := range dirs {
		dir, err := abi.OpenBelow(pod, d, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return nil, fmt.Errorf("watch a directory of the pod: %w", err)
		}
		defer dir.Close()
		paths = append(paths, procFD(dir.Fd()))
	}
	return watchFor(unix.IN_CREATE|unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO, paths...)
}

// watchFor begins to watch directories for some events.
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

// saw reports whether there was an event of a file with that name. The file may be gone
// again.
func (w *watch) saw(name string) bool { return w.names[name] }

// note records the names in a buffer of events.
func (w *watch) note(events []byte) {
	for len(events) >= unix.SizeofInotifyEvent {
		size := binary.NativeEndian.Uint32(events[12:])
		events = events[unix.SizeofInotifyEvent:]
		name := events[:min(int(size), len(events))]
		events = events[len(name):]
		w.names[string(bytes.TrimRight(name, "\x00"))] = true
	}
}

// until returns nil as soon as the function there returns true. It calls the function at
// the beginning and after each event. When ctx is done or ended is closed, it calls the
// function for the last time, and then returns ctx's error or stage1.ErrEnded.
func (w *watch) until(ctx context.Context, ended <-chan struct{}, there func() (bool, error)) error {
	_ = w.events.SetReadDeadline(time.Time{})
	wake := func() { _ = w.events.SetReadDeadline(time.Now()) }
	defer when(ctx.Done(), wake)()
	defer when(ended, wake)()
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

// await is until for a call that has to become ready. At the deadline of ctx it kills the
// call.
func (w *watch) await(ctx context.Context, k *stage1.Call, there func() (bool, error)) error {
	err := w.until(ctx, k.Ended, there)
	if errors.Is(err, context.DeadlineExceeded) {
		return k.Hung(ctx)
	}
	return err
}

// when calls f after a channel was closed, unless stop is called first. stop waits for f.
func when(c <-chan struct{}, f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-c:
			f()
		case <-quit:
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}
