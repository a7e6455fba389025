package immutable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// space is the mount namespace of a pod. Mounts that the host shares propagate to it.
// Mounts in it, such as the recursive shared bind mounts that rkt's images make of the
// host's /dev, /proc and /sys, do not propagate back, and are removed when the last process
// in it ends. They propagate to namespaces that are made from it, because an rkt image
// expects later mounts there.
//
// A nil space is the namespace of this process.
type space struct{ ns *os.File }

// newSpace makes a copy of this process's mount namespace.
func newSpace() (*space, error) {
	s := &space{}
	err := proc.OnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		for _, flag := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
			if err := unix.Mount("", "/", "", unix.MS_REC|flag, ""); err != nil {
				return fmt.Errorf("propagation: %w", err)
			}
		}
		s.ns, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a mount namespace for the pod: %w", err)
	}
	return s, nil
}

// errNoSpace is the error for a process whose mount namespace is no pod's space.
var errNoSpace = errors.New("it is not in the space of a pod")

// spaceOf returns the space of a process. A space has the host's root and the directory of the pod, as this process
// has them; the mount namespace of a container has another root.
func spaceOf(pid int, podDir string) (*space, error) {
	ns, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns/mnt"))
	if err != nil {
		return nil, err
	}
	s := &space{ns: ns}
	theirs, err := ns.Stat()
	if err == nil {
		var ours os.FileInfo
		if ours, err = os.Stat("/proc/self/ns/mnt"); err == nil && os.SameFile(ours, theirs) {
			err = errNoSpace
		}
	}
	for _, path := range []string{"/", podDir} {
		if err == nil {
			err = s.sees(path)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// sees returns an error unless a directory is the same in the space and in this process's mount namespace.
func (s *space) sees(dir string) error {
	ours, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	return s.do(func() error {
		theirs, err := os.Lstat(dir)
		if err == nil && !os.SameFile(ours, theirs) {
			err = errNoSpace
		}
		return err
	})
}

// copy returns a copy of the space, which change has changed. Mounts that are made later in one of the two propagate
// to the other.
func (s *space) copy(change func() error) (*space, error) {
	c := &space{}
	err := s.do(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := change(); err != nil {
			return err
		}
		c.ns, err = os.Open("/proc/thread-self/ns/mnt")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("copy the pod's mount namespace: %w", err)
	}
	return c, nil
}

// do calls f on a thread in the space. Processes that f starts are in the space; goroutines
// that it starts are not.
func (s *space) do(f func() error) error {
	if s == nil {
		return f()
	}
	return proc.OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("enter the pod's mount namespace: %w", err)
		}
		if err := unix.Setns(int(s.ns.Fd()), unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("enter the pod's mount namespace: %w", err)
		}
		return f()
	})
}

func (s *space) close() {
	if s != nil {
		_ = s.ns.Close()
	}
}

// SupervisorOf returns the pid that `run` has written into a pod directory, or 0.
func SupervisorOf(dir string) int {
	for _, name := range []string{PpidFile, PidFile} {
		if pid, err := ReadPID(filepath.Join(dir, name)); err == nil {
			return pid
		}
	}
	return 0
}

// Files in which `run` writes its pid, or that of the parent of the pod's first process.
const (
	PidFile  = "pid"
	PpidFile = "ppid"
)

// ErrNoPID is the error for a file without a complete pid. The file may be incomplete
// because it is not written in one step.
var ErrNoPID = errors.New("not a pid")

// maxPID is the size up to which a file with a pid is read.
const maxPID = 64

// ReadPID reads a file with a pid. The error unwraps to ErrNoPID if the file has no
// complete pid.
func ReadPID(path string) (int, error) {
	text, _, err := abi.ReadBelow(filepath.Dir(path), filepath.Base(path), maxPID)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 || // the machine's first process belongs to no pod
		!strings.HasSuffix(string(text), "\n") && len(text) < 2 {
		return 0, fmt.Errorf("%s: %.20q: %w", path, text, ErrNoPID)
	}
	return pid, nil
}

// Leader returns the pid that `enter` gets: the one in the file pid; without that file the
// only child of the process in the file ppid; without either file the pid of `run`.
func (s *InSpace) Leader(c pod.Call) int {
	if pid, err := ReadPID(c.Dir + "/" + PidFile); err == nil {
		return pid
	}
	if parent, err := ReadPID(c.Dir + "/" + PpidFile); err == nil {
		if children := ChildrenOf(parent); len(children) == 1 {
			return children[0]
		}
		return parent
	}
	return c.Leader
}

// ChildrenOf lists the children of a process. A process that has ended has none.
func ChildrenOf(pid int) []int {
	var children []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				children = append(children, child)
			}
		}
	}
	return children
}
