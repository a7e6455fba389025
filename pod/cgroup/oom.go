package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
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
	kills  map[uint64]uint64 // by the inode of a directory; the counts seen last
	closed bool              // look does not publish any more
}

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
	for inode, n := range now {
		found += n - min(n, w.kills[inode])
	}
	w.kills = now
	if found > 0 {
		w.publish()
	}
	return found
}

// count returns how often the kernel has killed, by the inode of a directory. On version 2 the
// count of the cgroup includes the kills below it, on version 1 only its own.
func (w *OOMWatch) count() (map[uint64]uint64, error) {
	kills := map[uint64]uint64{}
	dir := w.group.Dir("memory")
	if w.group.record.Version == 2 {
		events, err := readKeyed(filepath.Join(dir, "memory.events"))
		kills[w.group.record.Inode] = events["oom_kill"] + events["oom_group_kill"]
		return kills, err
	}
	return kills, countBelow(dir, kills)
}

// Close ends the watch. After that only Report publishes.
func (w *OOMWatch) Close() (err error) {
	if w != nil {
		w.ending.Do(func() { err = w.end() })
	}
	return err
}
