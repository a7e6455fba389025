package cgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// OOMWatch tells when the kernel kills processes of a cgroup, or of one below
// it, for want of memory.
//
// It costs one descriptor and one goroutine that sleeps in the runtime's poller.
// On version 1 the descriptor is an eventfd, on version 2 memory.events itself,
// which can be polled: inotify would run into the limit of 128 instances per
// user on a host with many pods.
type OOMWatch struct {
	group   *Group
	file    *os.File
	publish func()
	cancel  context.CancelFunc
	done    chan struct{} // closed when the goroutine has ended

	// mu is held over publish: who calls Report must find all published that
	// others have seen before.
	mu    sync.Mutex
	kills map[string]uint64 // by directory, of those seen last
}

// After the kernel has announced a lack of memory on version 1 the kill follows,
// unannounced, unless some other cgroup pays for it. It is looked for in pauses
// that double, as long as a kill can reasonably take.
const (
	firstOOMPause = time.Millisecond
	oomLimit      = 2 * time.Second
)

// WatchOOM calls publish once for each time that it finds that the kernel has
// killed. publish is not to block. A cgroup whose memory is not accounted has no
// watch: then it is nil, which Report and Close accept.
func (g *Group) WatchOOM(publish func()) (*OOMWatch, error) {
	if g.Dir("memory") == "" {
		return nil, nil
	}
	open := g.openOOMEventFD
	if g.record.Version == 2 {
		open = g.openMemoryEvents
	}
	f, err := open()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: watch its memory: %w", g.Path(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &OOMWatch{group: g, file: f, publish: publish, cancel: cancel, done: make(chan struct{})}
	w.kills, _ = w.count()
	watch := w.listen
	if g.record.Version == 2 {
		watch = w.poll
	}
	go func() {
		defer close(w.done)
		watch(ctx)
	}()
	return w, nil
}

func (g *Group) openMemoryEvents() (*os.File, error) {
	return os.Open(filepath.Join(g.Dir("memory"), "memory.events"))
}

// openOOMEventFD returns an eventfd that the kernel writes to when it runs out of
// memory in the cgroup or above it.
func (g *Group) openOOMEventFD() (*os.File, error) {
	dir := g.Dir("memory")
	control, err := os.Open(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return nil, err
	}
	defer control.Close()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "eventfd of "+g.Path())
	request := fmt.Sprintf("%d %d", fd, control.Fd())
	if err := os.WriteFile(filepath.Join(dir, "cgroup.event_control"), []byte(request), 0); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Report publishes what has not been published. When it returns, every kill
// before the call has been.
func (w *OOMWatch) Report() {
	if w != nil {
		_ = w.report()
	}
}

// report is Report, and tells whether there was anything.
func (w *OOMWatch) report() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, err := w.count()
	if err != nil {
		return false // the cgroup goes away
	}
	risen := false
	for dir, n := range now {
		risen = risen || n > w.kills[dir]
	}
	w.kills = now
	if risen {
		w.publish()
	}
	return risen
}

// count returns how often the kernel has killed, by directory. On version 2 the
// directory of the cgroup has the kills below it, on version 1 its own only.
func (w *OOMWatch) count() (map[string]uint64, error) {
	kills := map[string]uint64{}
	dir := w.group.Dir("memory")
	if w.group.record.Version == 2 {
		events, err := readKeyed(filepath.Join(dir, "memory.events"))
		kills[dir] = events["oom_kill"] + events["oom_group_kill"]
		return kills, err
	}
	return kills, countBelow(dir, kills)
}

func countBelow(dir string, kills map[string]uint64) error {
	control, err := readKeyed(filepath.Join(dir, "memory.oom_control"))
	if err != nil {
		return err
	}
	kills[dir] = control["oom_kill"]
	subs, err := children(dir)
	for _, sub := range subs {
		err = errors.Join(err, countBelow(sub, kills))
	}
	return err
}

// poll watches version 2.
func (w *OOMWatch) poll(ctx context.Context) {
	_ = awaitChange(ctx, w.file, func([]byte) (bool, error) {
		w.report()
		return false, nil
	})
}

// listen watches version 1.
func (w *OOMWatch) listen(ctx context.Context) {
	var count [8]byte
	for {
		if n, err := w.file.Read(count[:]); err != nil || n < len(count) || binary.NativeEndian.Uint64(count[:]) == 0 {
			return // closed
		}
		w.find(ctx)
	}
}

// find looks for the kill that the kernel has announced. If the cgroup has no
// kill because its processes are to be stopped instead (disableOOMKiller), that
// is published.
func (w *OOMWatch) find(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, oomLimit)
	defer cancel()
	for wait := firstOOMPause; !w.report(); wait *= 2 {
		if w.stuck() {
			w.mu.Lock()
			w.publish()
			w.mu.Unlock()
			return
		}
		if pause(ctx, wait) != nil {
			return // it was another cgroup's
		}
	}
}

// stuck tells whether the processes of the cgroup wait for memory.
func (w *OOMWatch) stuck() bool {
	control, err := readKeyed(filepath.Join(w.group.Dir("memory"), "memory.oom_control"))
	return err == nil && control["oom_kill_disable"] == 1 && control["under_oom"] == 1
}

// Close ends the watch. Nothing is published afterwards but by Report.
func (w *OOMWatch) Close() error {
	if w == nil {
		return nil
	}
	w.cancel()
	err := w.file.Close()
	<-w.done
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
