package leaks

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Pods records the pods of some data directories. stage1s name cgroups after pods, and these
// cgroups can then be found after the pod has been removed. The zero value has recorded
// nothing.
type Pods struct {
	mu    sync.Mutex
	fd    int // of inotify; 0 until something is watched
	dirs  map[int32]string
	known map[string][]string // by data directory
}

// Watch begins to watch a data directory, before there are pods. It makes missing directories
// with the modes that a shim gives them, because users of user namespaces must reach them.
func (p *Pods) Watch(data string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd == 0 {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
		if err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
		p.fd, p.dirs, p.known = fd, map[int32]string{}, map[string][]string{}
	}
	run := filepath.Join(data, "pods/run")
	if err := errors.Join(os.MkdirAll(data, 0o755), os.MkdirAll(run, 0o750)); err != nil {
		return err
	}
	wd, err := unix.InotifyAddWatch(p.fd, run, unix.IN_MOVED_TO|unix.IN_ONLYDIR)
	if err != nil {
		return fmt.Errorf("watch %s: %w", run, err)
	}
	p.dirs[int32(wd)] = data
	return nil
}

// Of returns the UUIDs of the pods that a data directory has had.
func (p *Pods) Of(data string) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd == 0 {
		return nil, nil
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Read(p.fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return slices.Clone(p.known[data]), nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("watch pods: %w", err)
		}
		if err := p.note(buf[:max(0, n)]); err != nil {
			return nil, err
		}
	}
}

// note records the pods in events of inotify.
func (p *Pods) note(events []byte) error {
	for len(events) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		size := binary.NativeEndian.Uint32(events[12:])
		name := events[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+size]
		events = events[unix.SizeofInotifyEvent+size:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			return errors.New("watch pods: some were missed, there are too many")
		}
		if data := p.dirs[wd]; mask&unix.IN_MOVED_TO != 0 {
			p.known[data] = append(p.known[data], string(bytes.TrimRight(name, "\x00")))
		}
	}
	return nil
}

// machines lists the cgroups that stage1s have named after pods of the scope, at any path.
func (s Scope) machines() ([]string, error) {
	if len(s.Pods) == 0 {
		return nil, nil
	}
	names := map[string]bool{}
	for _, uuid := range s.Pods {
		names[`machine-rkt\x2d`+strings.ReplaceAll(uuid, "-", `\x2d`)+".scope"] = true
	}
	hierarchies, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, hierarchy := range hierarchies {
		err := filepath.WalkDir(hierarchy, func(path string, d fs.DirEntry, err error) error {
			if err != nil { // it was removed meanwhile
				return fs.SkipDir
			}
			if d.IsDir() && names[d.Name()] {
				dirs = append(dirs, path)
				return fs.SkipDir
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.SkipDir) {
			return nil, err
		}
	}
	return dirs, nil
}
