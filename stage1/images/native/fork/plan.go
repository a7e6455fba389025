package fork

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork/nofile"
)

// plan is a Process laid out for the child: numbers, and pointers to memory
// that nobody moves.
type plan struct {
	// Descriptor i of the child is files[i] of the parent. moved is room for
	// their numbers on the way. From kept on they close on exec.
	files []int32
	moved []int32
	kept  int
	above int // all descriptors in files are below

	// Descriptors of the child.
	report, exe, dir int
	joins            []join // before the second clone
	late             []join // behind it

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

// report is what a child tells its parent.
type report struct {
	step  step
	errno uint32
	value uint32 // of born: the pid; of stepJoin: the index
}

// reportSize is the size of a report in a packet.
const reportSize = int(unsafe.Sizeof(report{}))

// lay makes the plan for p. words is the child's end of the report socket.
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
	// Of the caller's mount namespace, or of a copy: /proc shows the child there.
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
	// The Go runtime raises the soft limit for itself; what we start is to
	// have the one that we were started with.
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

// namespaces lays out what is joined. A cgroup namespace comes behind the clone into
// a cgroup: where namespaces are a boundary of cgroups (the mount option nsdelegate,
// systemd's choice) nobody is born in a cgroup by who does not see, from the root of
// his namespace, both that one and his own. A user namespace comes as late, unless the
// clone makes namespaces that are to belong to it: in it nobody has the right to be born
// in a cgroup that was handed over to one of its users.
func (l *plan) namespaces(p *Process) {
	late := 0
	if p.Cgroup != nil {
		late = unix.CLONE_NEWCGROUP
		if p.New&^unix.CLONE_NEWTIME == 0 { // which the child makes by itself
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

// clones sets the arguments of the one clone or the two.
func (l *plan) clones(p *Process) {
	// A time namespace that is made by a clone can have no offsets: its first
	// process is in it at once. So the child makes it.
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
	// With CLONE_PARENT the kernel takes the exit signal from the cloner.
	final.flags |= unix.CLONE_PARENT
	final.exitSignal = 0
	if p.Cgroup != nil {
		final.cgroup = uint64(l.place(p.Cgroup))
	}
	l.second = final
}

// pointer is that of an array's first element, for a system call.
//
//go:nosplit
//go:norace
func pointer(p []*byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
