package view

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// settle is the least time between two readings of a Watcher. The changes of one step of a pod
// are read together.
const settle = 50 * time.Millisecond

// Watcher waits for changes of pods: of their files, by inotify, and ends of their
// processes, by pidfds. With version 1 of cgroups the kernel does not announce that a cgroup
// was frozen, so a pause is seen with the next change.
type Watcher struct {
	node    *Node
	inotify *os.File
	changed chan struct{} // has an element if something has changed
	begun   bool
	last    time.Time // of the last reading

	ctx    context.Context // of the goroutines
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	waiting map[Process]bool // processes for whose end a goroutine waits
}

// Watch returns a Watcher. The caller closes it.
func (n *Node) Watch() (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	w := &Watcher{
		node: n, inotify: os.NewFile(uintptr(fd), "inotify"),
		changed: make(chan struct{}, 1), waiting: map[Process]bool{},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.all.Go(w.read)
	return w, nil
}

// Close ends the Watcher.
func (w *Watcher) Close() error {
	w.cancel()
	err := w.inotify.Close()
	w.all.Wait()
	return err
}

// Next returns all pods: the first time at once, and then after something has changed since
// they were returned last. It returns ctx's error when ctx is done.
func (w *Watcher) Next(ctx context.Context) ([]*Pod, error) {
	if w.begun {
		select {
		case <-w.changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if err := proc.Sleep(ctx, time.Until(w.last.Add(settle))); err != nil {
			return nil, err
		}
		select {
		case <-w.changed:
		default:
		}
	}
	w.begun, w.last = true, time.Now()
	// Watch first and read afterwards: a change in between is then in the result, and also
	// announced.
	if err := w.watchDirectories(); err != nil {
		return nil, err
	}
	pods, err := w.node.Pods()
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		w.watchProcesses(p)
	}
	return pods, nil
}

// change announces a change.
func (w *Watcher) change() {
	select {
	case w.changed <- struct{}{}:
	default: // it is announced already
	}
}

// read reads the events of inotify. They only say that something has changed.
func (w *Watcher) read() {
	buf := make([]byte, 64<<10)
	for {
		if _, err := w.inotify.Read(buf); err != nil {
			return // Close
		}
		w.change()
	}
}

// Events of directories that are waited for.
const inDirectory = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR

// watchDirectories watches the directories of all pods. A directory that is watched already
// is no error.
func (w *Watcher) watchDirectories() error {
	states := w.node.files.Directories()
	for _, dir := range states {
		if err := w.watch(dir, inDirectory); err != nil {
			return err
		}
	}
	// They may not exist yet.
	for dir := filepath.Dir(states[0]); ; dir = filepath.Dir(dir) {
		if err := w.watch(dir, inDirectory); err != nil {
			return err
		}
		if _, err := os.Lstat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
	}
	uuids, err := w.node.files.UUIDs()
	if err != nil {
		return err
	}
	for _, uuid := range uuids {
		err := w.node.in(uuid, func(root *os.Root) error { return w.watchPod(root.Name()) })
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (w *Watcher) watchPod(dir string) error {
	apps, status := filepath.Join(dir, "appsinfo"), filepath.Join(dir, abi.StatusDir)
	// A directory is watched before it is read, so that what is made in it meanwhile is either
	// found or announced.
	dirs := []string{dir, apps, status}
	for n := 0; n < len(dirs); n++ {
		if err := w.watch(dirs[n], inDirectory); err != nil {
			return err
		}
		switch dirs[n] {
		case apps:
			dirs = append(dirs, below(apps, "")...)
		case status:
			dirs = append(dirs, below(status, ".exec")...)
		}
	}
	return nil
}

// below returns the paths of a directory's entries whose names end in suffix: none if it cannot
// be read, because it has gone.
func below(dir, suffix string) []string {
	entries, _ := os.ReadDir(dir)
	var paths []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// watch adds a watch. A path that does not exist, or is no directory if that is asked for,
// is no error.
func (w *Watcher) watch(path string, events uint32) error {
	err := proc.Control(w.inotify, func(fd int) error {
		_, err := unix.InotifyAddWatch(fd, path, events|unix.IN_DONT_FOLLOW)
		return err
	})
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return nil
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("watch %s: there are too many watches: raise the sysctl fs.inotify.max_user_watches: %w", path, err)
	}
	return fmt.Errorf("watch %s: %w", path, err)
}

// watchProcesses waits for the ends of a pod's processes, and for freezes of its apps'
// cgroups of version 2.
func (w *Watcher) watchProcesses(p *Pod) {
	w.await(p.Shim)
	w.await(p.Supervisor)
	for _, a := range p.Apps {
		w.await(a.Process)
		if a.Cgroup != nil && a.Cgroup.Version == 2 {
			// An error means that the cgroup is gone: then the app's process has ended.
			_ = w.watch(filepath.Join(a.Cgroup.Dir(), "cgroup.events"), unix.IN_MODIFY)
		}
	}
}

func (w *Watcher) await(p *Process) {
	if p == nil || !p.Alive {
		return
	}
	key := *p
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[key] || w.ctx.Err() != nil {
		return
	}
	q, err := proc.Open(p.PID, p.StartTime)
	if err != nil {
		w.change() // it has ended meanwhile
		return
	}
	w.waiting[key] = true
	w.all.Go(func() {
		defer q.Close()
		if q.Wait(w.ctx) != nil {
			return
		}
		w.mu.Lock()
		delete(w.waiting, key)
		w.mu.Unlock()
		w.change()
	})
}
