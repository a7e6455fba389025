package fork

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc/nofile"
)

// plan is a Process prepared for the child: numbers, and pointers to memory
// that the garbage collector does not move.
type plan struct {
	// Descriptor i of the child is files[i] of the parent. moved has room for temporary
	// descriptor numbers. Descriptors from kept on are closed on exec.
	files []int32
	moved []int32
	kept  int
	above int // higher than all descriptors in files

	// Descriptors of the child.
	report, exe, dir int
	joins            []join // before the second clone
	late             []join // after the second clone

	first, second cloneArgs
	twice         bool
	awaited       bool
	root          bool
	unreadable    bool
	clocks        bool

	path    *byte
	argv    []*byte
	envv    []*byte
	nofile  unix.Rlimit
	limited bool

	offsets     []byte
	offsetsFile *byte
	timeFile    *byte

	words report
	word  byte
	none  byte
}

type join struct {
	fd    int
	flags int
	index int // in Process.Joins
}

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal uint64
	stack, stackSize, tls, setTID, setTIDSize     uint64
	cgroup                                        uint64
}

// report is a message from a child to its parent.
type report struct {
	step  step
	errno uint32
	value uint32 // in cloned: the pid; in stepJoin: the index
}

// reportSize is the size of a report in a packet.
const reportSize = int(unsafe.Sizeof(report{}))

// lay makes the plan of p. words is the child's end of the report socket.
func lay(p *Process, words *os.File) (*plan, error) {
	l := &plan{
		twice:      p.twice(),
		awaited:    p.awaited(),
		root:       p.Root,
		unreadable: p.Unreadable,
		clocks:     p.New&unix.CLONE_NEWTIME != 0,
		offsets:    p.Clocks,
		dir:        -1,
		exe:        -1,
	}
	for _, f := range p.Files {
		l.place(f)
	}
	l.kept = len(l.files)
	l.report = l.place(words)
	if p.Exe != nil {
		l.exe = l.place(p.Exe)
	}
	if p.Dir != nil {
		l.dir = l.place(p.Dir)
	}
	l.namespaces(p)
	l.clones(p)
	l.moved = make([]int32, len(l.files))

	var err error
	// This path is in the caller's mount namespace or in a copy of it, where /proc has the
	// child.
	if l.offsetsFile, err = syscall.BytePtrFromString("/proc/self/timens_offsets"); err != nil {
		return nil, err
	}
	if l.timeFile, err = syscall.BytePtrFromString("/proc/self/ns/time_for_children"); err != nil {
		return nil, err
	}
	if l.path, err = syscall.BytePtrFromString(p.Path); err != nil {
		return nil, fmt.Errorf("path %q: %w", p.Path, err)
	}
	if l.argv, err = syscall.SlicePtrFromStrings(p.Args); err != nil {
		return nil, fmt.Errorf("arguments of %s: %w", p.Path, err)
	}
	if l.envv, err = syscall.SlicePtrFromStrings(p.Env); err != nil {
		return nil, fmt.Errorf("environment of %s: %w", p.Path, err)
	}
	// The Go runtime has raised the soft limit of this process. The new process gets the
	// limit with which this process was started.
	l.nofile = unix.Rlimit{Cur: nofile.Original[0], Max: nofile.Original[1]}
	l.limited = l.nofile.Cur < l.nofile.Max
	return l, nil
}

// place gives a file the next descriptor of the child.
func (l *plan) place(f *os.File) int {
	fd := int(f.Fd())
	l.files = append(l.files, int32(fd))
	l.above = max(l.above, fd+1, len(l.files))
	return len(l.files) - 1
}

// namespaces plans the namespaces to join.
//
// A cgroup namespace is joined after the clone into a cgroup. With the mount option
// nsdelegate, which systemd uses, a process can only clone into a cgroup if both that
// cgroup and its own are below the root of its cgroup namespace.
//
// A user namespace is joined after that clone, too, because a process in the user namespace
// has no right to clone into a cgroup that was delegated to one of the namespace's users.
// But if the clone makes namespaces that must belong to the user namespace, the user
// namespace is joined before the clone.
func (l *plan) namespaces(p *Process) {
	late := 0
	if p.Cgroup != nil {
		late = unix.CLONE_NEWCGROUP
		if p.New&^unix.CLONE_NEWTIME == 0 { // the child makes a time namespace later
			late |= unix.CLONE_NEWUSER
		}
	}
	for i, j := range p.Joins {
		fd := l.place(j.File)
		if flags := j.Flags &^ late; flags != 0 {
			l.joins = append(l.joins, join{fd, flags, i})
		}
		if flags := j.Flags & late; flags != 0 {
			l.late = append(l.late, join{fd, flags, i})
		}
	}
}

// clones sets the arguments of the one or two clones.
func (l *plan) clones(p *Process) {
	// The child makes a time namespace after the clone. If the clone made it, the child
	// would be in it at once, and its offsets could not be set any more.
	final := cloneArgs{flags: uint64(p.New &^ unix.CLONE_NEWTIME), exitSignal: uint64(unix.SIGCHLD)}
	if p.Cgroup != nil {
		final.flags |= unix.CLONE_INTO_CGROUP
		final.cgroup = uint64(p.Cgroup.Fd())
	}
	if !l.twice {
		l.first = final
		return
	}
	l.first = cloneArgs{exitSignal: uint64(unix.SIGCHLD)}
	// With CLONE_PARENT the kernel uses the exit signal of the process that calls clone.
	final.flags |= unix.CLONE_PARENT
	final.exitSignal = 0
	if p.Cgroup != nil {
		final.cgroup = uint64(l.place(p.Cgroup))
	}
	l.second = final
}

// pointer returns the address of an array's first element, for a system call.
//
//go:nosplit
//go:norace
func pointer(p []*byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
