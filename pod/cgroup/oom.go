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

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// OOMWatch reports when the kernel kills processes of a cgroup, or of a cgroup below it, for
// lack of memory.
//
// It costs one descriptor and one goroutine that sleeps in the runtime's poller. On version
// 1 the descriptor is an eventfd, on version 2 memory.events itself, which can be polled.
// inotify is not used, because a host with many pods would reach the limit of 128 instances
// per user.
type OOMWatch struct {
	group   *Group
	file    *os.File
	publish func()
	cancel  context.CancelFunc
	done    chan struct{} // closed when the goroutine has ended

	// mu is held during publish, so that Report returns only after all kills that another
	// goroutine has found were published.
	mu    sync.Mutex
	kills map[string]uint64 // by directory; the counts seen last
}

// On version 1 the kernel announces that memory ran out, but not that it kills a process
// after that, which may be in another cgroup. The watch polls for the kill, in pauses that
// double, up to oomLimit.
const (
	firstOOMPause = time.Millisecond
	oomLimit      = 2 * time.Second
)

// WatchOOM calls publish each time that it finds new kills. publish must not block. If the
// cgroup's memory is not accounted, WatchOOM returns nil, which Report and Close accept.
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
	if g.lock == nil { // a new cgroup has had no process
		w.kills, _ = w.count()
	}
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
	control, err := proc.OpenFD(filepath.Join(dir, "memory.oom_control"), os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(control)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an eventfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), "eventfd of "+g.Path())
	request := fmt.Sprintf("%d %d", fd, control)
	if err := proc.WriteFile(filepath.Join(dir, "cgroup.event_control"), request); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Report publishes unpublished kills. When it returns, every kill from before the call has
// been published.
func (w *OOMWatch) Report() {
	if w != nil {
		_ = w.report()
	}
}

// report is Report, and reports whether there was a new kill.
func (w *OOMWatch) report() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, err := w.count()
	if err != nil {
		return false // the cgroup is being removed
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
// count of the cgroup includes the kills below it, on version 1 only its own.
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

// poll is the goroutine of a watch on version 2.
func (w *OOMWatch) poll(ctx context.Context) {
	_ = awaitChange(ctx, w.file, func([]byte) (bool, error) {
		w.report()
		return false, nil
	})
}

// listen is the goroutine of a watch on version 1.
func (w *OOMWatch) listen(ctx context.Context) {
	var count [8]byte
	for {
		n, err := w.file.Read(count[:])
		announced := binary.NativeEndian.Uint64(count[:])
		if err != nil || n < len(count) || announced == 0 {
			return // closed
		}
		// Of several announcements the last kill may still be coming, after those that are found
		// at once.
		for range min(announced, 2) {
			w.find(ctx)
		}
	}
}

// find polls for a kill after the kernel's announcement. With disableOOMKiller the kernel
// stops the processes instead of killing one; find publishes that, too.
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
		if proc.Sleep(ctx, wait) != nil {
			return // the kernel has killed a process of another cgroup
		}
	}
}

// stuck reports whether the processes of the cgroup wait for memory.
func (w *OOMWatch) stuck() bool {
	control, err := readKeyed(filepath.Join(w.group.Dir("memory"), "memory.oom_control"))
	return err == nil && control["oom_kill_disable"] == 1 && control["under_oom"] == 1
}

// Close ends the watch. After that only Report publishes.
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
