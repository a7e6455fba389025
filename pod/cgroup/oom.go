package cgroup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// OOMWatches has the watches of the cgroups of one pod. The zero value has none.
//
// On version 1 they share an eventfd and a goroutine. On version 2 each watch has its own: the
// file is memory.events itself, which can be polled. inotify is not used, because a host with
// many pods would reach the limit of 128 instances per user. The goroutines sleep in the runtime's
// poller.
type OOMWatches struct {
	mu      sync.Mutex
	eventfd *os.File               // nil if no cgroup of version 1 is watched
	ended   chan struct{}          // closed when the goroutine of eventfd has ended
	watches map[*OOMWatch]struct{} // of eventfd
	closed  []watchedDir           // cgroups whose watch was closed, and whose removal the kernel will announce on eventfd
}

// watchedDir is a cgroup's directory. A later one with the same path has another inode.
type watchedDir struct {
	path  string
	inode uint64
}

func (d watchedDir) gone() bool {
	var st unix.Stat_t
	return unix.Stat(d.path, &st) != nil || st.Ino != d.inode
}

// OOMWatch reports when the kernel kills processes of a cgroup, or of a cgroup below it, for
// lack of memory.
type OOMWatch struct {
	group   *Group
	publish func()
	end     func() error // called once, by Close
	ending  sync.Once

	// mu is held during publish, so that Report returns only after all kills that another
	// goroutine has found were published.
	mu     sync.Mutex
	kills  map[string]uint64 // by directory; the counts seen last
	closed bool              // look does not publish any more
}

// On version 1 the kernel announces that memory ran out, but not that it kills a process
// after that, which may be in another cgroup. The goroutine polls for the kill, in pauses that
// double, up to oomLimit.
const (
	firstOOMPause = time.Millisecond
	oomLimit      = 2 * time.Second
)

// Watch calls publish each time that it finds new kills in the cgroup g. publish must not
// block. If the cgroup's memory is not accounted, Watch returns nil, which Report and Close
// accept.
func (o *OOMWatches) Watch(g *Group, publish func()) (*OOMWatch, error) {
	if g.Dir("memory") == "" {
		return nil, nil
	}
	w := &OOMWatch{group: g, publish: publish}
	if g.lock == nil { // a new cgroup has had no process
		w.kills, _ = w.count()
	}
	begin := o.listenTo
	if g.record.Version == 2 {
		begin = (*OOMWatch).poll
	}
	err := begin(w)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: watch its memory: %w", g.Path(), err)
	}
	return w, nil
}

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

// poll starts the goroutine of a watch on version 2.
func (w *OOMWatch) poll() error {
	f, err := os.Open(filepath.Join(w.group.Dir("memory"), "memory.events"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = awaitChange(ctx, f, func([]byte) (bool, error) {
			w.report()
			return false, nil
		})
	}()
	w.end = func() error {
		cancel()
		err := f.Close()
		<-ended
		return err
	}
	return nil
}

// Report publishes unpublished kills. When it returns, every kill from before the call has
// been published.
func (w *OOMWatch) Report() {
	if w != nil {
		w.report()
	}
}

// report is Report, and returns the number of the new kills.
func (w *OOMWatch) report() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reportLocked()
}

func (w *OOMWatch) reportLocked() (found uint64) {
	now, err := w.count()
	if err != nil {
		return 0 // the cgroup is being removed
	}
	for dir, n := range now {
		found += n - min(n, w.kills[dir])
	}
	w.kills = now
	if found > 0 {
		w.publish()
	}
	return found
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

// stuck reports whether the processes of the cgroup wait for memory.
func (w *OOMWatch) stuck() bool {
	control, err := readKeyed(filepath.Join(w.group.Dir("memory"), "memory.oom_control"))
	return err == nil && control["oom_kill_disable"] == 1 && control["under_oom"] == 1
}

// Close ends the watch. After that only Report publishes.
func (w *OOMWatch) Close() (err error) {
	if w != nil {
		w.ending.Do(func() { err = w.end() })
	}
	return err
}
