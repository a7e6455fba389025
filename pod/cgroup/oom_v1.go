package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// watchedDir is a cgroup's directory. A later one with the same path has another inode.
type watchedDir struct {
	path  string
	inode uint64
}

func (d watchedDir) gone() bool {
	var st unix.Stat_t
	return unix.Stat(d.path, &st) != nil || st.Ino != d.inode
}

// On version 1 the kernel announces that memory ran out, but not that it kills a process
// after that, which may be in another cgroup. The goroutine polls for the kill, in pauses that
// double, up to oomLimit.
const (
	firstOOMPause = time.Millisecond
	oomLimit      = 2 * time.Second
)

// listenTo lets the kernel write to the eventfd when it runs out of memory in the cgroup or
// above it.
func (o *OOMWatches) listenTo(w *OOMWatch) error {
	dir := w.group.Dir("memory")
	control, err := proc.OpenFD(filepath.Join(dir, "memory.oom_control"), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(control)
	f, err := o.enlist(w)
	if err != nil {
		return err
	}
	w.end = func() error { return o.forget(w, true) }
	err = proc.Control(f, func(fd int) error {
		return proc.WriteFile(filepath.Join(dir, "cgroup.event_control"), fmt.Sprintf("%d %d", fd, control))
	})
	if err != nil {
		_ = o.forget(w, false)
	}
	return err
}

// enlist returns the eventfd, which is open until the last watch is forgotten.
func (o *OOMWatches) enlist(w *OOMWatch) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.eventfd == nil {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, fmt.Errorf("make an eventfd: %w", err)
		}
		o.eventfd = os.NewFile(uintptr(fd), "eventfd of OOMs")
		o.ended, o.closed, o.watches = make(chan struct{}), nil, map[*OOMWatch]struct{}{}
		go o.listen(o.eventfd, o.ended)
	}
	o.watches[w] = struct{}{}
	return o.eventfd, nil
}

// forget ends the watch of a cgroup, and with the last one the goroutine. announced says that the
// kernel will announce the removal of the cgroup.
func (o *OOMWatches) forget(w *OOMWatch, announced bool) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	dir := w.group.Dir("memory")
	var st unix.Stat_t
	announced = announced && unix.Stat(dir, &st) == nil // if it has gone, its removal was announced

	o.mu.Lock()
	delete(o.watches, w)
	if len(o.watches) > 0 {
		if announced {
			o.closed = append(o.closed, watchedDir{path: dir, inode: st.Ino})
		}
		o.mu.Unlock()
		return nil
	}
	f, ended := o.eventfd, o.ended
	o.eventfd = nil
	o.mu.Unlock()
	err := f.Close()
	<-ended
	return err
}

// listen is the goroutine of the eventfd. It polls until it has found as many kills as were
// announced. An announcement may have no kill: the kernel may kill a process of a cgroup that is
// not watched, and announces an OOM of the pod for each of its cgroups.
func (o *OOMWatches) listen(f *os.File, ended chan<- struct{}) {
	defer close(ended)
	var announced uint64 // and not found
	var pause time.Duration
	var limit time.Time
	for {
		var next time.Time // none
		if announced > 0 {
			next = time.Now().Add(pause)
			pause *= 2
		}
		_ = f.SetReadDeadline(next)
		more, err := o.read(f)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return // closed
		}
		if more > 0 {
			announced += more
			pause, limit = firstOOMPause, time.Now().Add(oomLimit)
		}
		if announced > 0 {
			announced -= min(announced, o.look(more > 0))
		}
		if !time.Now().Before(limit) {
			announced = 0
		}
	}
}

// read waits for announcements and returns how many there were, without those of removed
// cgroups.
func (o *OOMWatches) read(f *os.File) (uint64, error) {
	var count [8]byte
	if _, err := f.Read(count[:]); err != nil {
		return 0, err
	}
	return o.ofMemory(binary.NativeEndian.Uint64(count[:])), nil
}

// ofMemory returns how many of n announcements are not of removals. The kernel announces a
// removal once, soon after the directory has gone. If another announcement comes between, it is
// taken for the removal's, and the removal's for the other one.
func (o *OOMWatches) ofMemory(n uint64) uint64 {
	o.mu.Lock()
	closed := slices.Clone(o.closed)
	o.mu.Unlock()
	for _, dir := range closed {
		if n == 0 {
			break
		}
		if dir.gone() {
			n--
			o.mu.Lock()
			o.closed = slices.DeleteFunc(o.closed, func(d watchedDir) bool { return d == dir })
			o.mu.Unlock()
		}
	}
	return n
}

// look publishes unpublished kills of all watched cgroups, and returns their number. With
// disableOOMKiller the kernel stops the processes instead of killing one; right after an
// announcement look publishes that, too.
func (o *OOMWatches) look(announced bool) (found uint64) {
	o.mu.Lock()
	watches := slices.Collect(maps.Keys(o.watches))
	o.mu.Unlock()
	for _, w := range watches {
		found += w.look(announced)
	}
	return found
}

// look is report, unless the watch is closed.
func (w *OOMWatch) look(announced bool) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0
	}
	found := w.reportLocked()
	if found == 0 && announced && w.stuck() {
		w.publish()
	}
	return found
}

// countBelow counts the kills in a cgroup and in those below it, by their inodes.
func countBelow(dir string, kills map[uint64]uint64) error {
	return walk(dir, func(p place) error {
		st, err := p.stat()
		if err != nil {
			return err
		}
		text, err := p.read("memory.oom_control")
		kills[st.Ino] = keyed(text)["oom_kill"]
		return err
	}, nil)
}

// stuck reports whether the processes of the cgroup wait for memory.
func (w *OOMWatch) stuck() bool {
	control, err := readKeyed(filepath.Join(w.group.Dir("memory"), "memory.oom_control"))
	return err == nil && control["oom_kill_disable"] == 1 && control["under_oom"] == 1
}
