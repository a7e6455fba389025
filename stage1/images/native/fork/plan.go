package fork

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc/nofile"
)

// plan is a Process prepared for the child: numbers, and pointers into the sheet that has the
// plan itself.
type plan struct {
	// Descriptor i of the child is files[i] of the parent, or, if that is opened, a file that the
	// child opens. moved has room for temporary descriptor numbers. Descriptors from kept on are
	// closed on exec, except for those that the child opens.
	files []int32
	moved []int32
	kept  int
	above int // higher than all descriptors in files

	tasks   []*byte // paths; their descriptors follow the report's
	devices *byte   // or nil

	// Descriptors of the child.
	report, exe, dir int
	joins            []join // before the second clone
	late             []join // after the second clone

	first, second cloneArgs
	twice         bool
	// The process gets the identity of its Program before the last clone, and appears in the
	// namespaces with that. If it is cloned into a cgroup, that needs a clone of its own, with
	// rights that the identity may not have.
	outside    bool
	born       cloneArgs
	thrice     bool
	awaited    bool
	root       bool
	unreadable bool
	clocks     bool
	ipc        bool // the process makes its IPC namespace as root of its user namespace

	path    *byte
	argv    []*byte
	envv    []*byte
	nofile  unix.Rlimit
	limited bool

	offsets     []byte
	offsetsFile *byte
	timeFile    *byte

	program *becoming // executed in place of path or exe, or nil
	idle    *idling   // what the process does in place of that, or nil
	started bool      // the parent of a First has let it execute its program

	// What the child keeps of its parent's memory is between the gaps.
	page    uintptr
	gaps    [3]span
	written [maxWritten]span

	words report
	word  byte
	none  byte
	zero  byte // "0"
}

// opened takes the place of a descriptor of the parent in plan.files if the child opens the file.
const opened = -1

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

// lay makes the plan of p on a sheet. words is the child's end of the report socket.
func lay(p *Process, words *os.File) (*plan, *sheet, error) {
	s, err := newSheet(p.room())
	if err != nil {
		return nil, nil, err
	}
	l := &carve[plan](s, 1)[0]
	if err := l.lay(p, words, s); err != nil {
		s.close()
		return nil, nil, err
	}
	return l, s, nil
}

// places is the most descriptors that the child has.
func (p *Process) places() int {
	const others = 8 // report, program, directory, cgroup, and procfs of a label or four of an Idle
	return len(p.Files) + len(p.Tasks) + len(p.Joins) + others
}

// room returns how large a sheet the plan takes at most.
func (p *Process) room() int {
	n := int(unsafe.Sizeof(plan{})) + 1024 // paths of /proc, alignment
	n += p.places() * int(2*unsafe.Sizeof(int32(0))+2*unsafe.Sizeof(join{}))
	if p.Program != nil {
		n += int(unsafe.Sizeof(becoming{})) + p.Program.room()
	}
	if p.Idle != nil {
		n += p.Idle.room()
	}
	return n + len(p.Clocks) + room(p.Tasks) + room([]string{p.Path, p.Devices}) + room(p.Args) + room(p.Env)
}

func (l *plan) lay(p *Process, words *os.File, s *sheet) (err error) {
	l.twice, l.awaited, l.root, l.unreadable = p.twice(), p.awaited(), p.Root, p.Unreadable
	l.outside, l.thrice = p.outside(), p.thrice()
	l.clocks = p.New&unix.CLONE_NEWTIME != 0
	l.ipc = p.Root && p.New&unix.CLONE_NEWIPC != 0
	l.offsets = carve[byte](s, len(p.Clocks))
	copy(l.offsets, p.Clocks)
	l.dir, l.exe = -1, -1
	l.files = carve[int32](s, p.places())[:0]
	l.joins, l.late = carve[join](s, len(p.Joins))[:0], carve[join](s, len(p.Joins))[:0]
	for _, f := range p.Files {
		l.place(f)
	}
	l.kept = len(l.files)
	l.report = l.place(words)
	if l.tasks, err = s.texts(p.Tasks); err != nil {
		return fmt.Errorf("files of cgroups: %w", err)
	}
	l.tasks = l.tasks[:len(p.Tasks)]
	if p.Devices != "" {
		if l.devices, err = s.text(p.Devices); err != nil {
			return fmt.Errorf("files of cgroups: %w", err)
		}
	}
	l.zero = '0'
	for range l.tasks {
		l.files = append(l.files, opened)
		l.above = max(l.above, len(l.files))
	}
	if p.Exe != nil {
		l.exe = l.place(p.Exe)
	}
	if p.Dir != nil {
		l.dir = l.place(p.Dir)
	}
	l.namespaces(p)
	l.clones(p)
	if p.Program != nil {
		if err := l.layProgram(p.Program, s, p.Root); err != nil {
			return err
		}
	}
	if p.Idle != nil {
		if err := l.layIdle(p.Idle, s); err != nil {
			return err
		}
	}
	l.moved = carve[int32](s, len(l.files))
	if forgets {
		if err := l.prepareForget(s); err != nil {
			return err
		}
	}
	// This path is in the caller's mount namespace or in a copy of it, where /proc has the
	// child.
	if l.offsetsFile, err = s.text("/proc/self/timens_offsets"); err != nil {
		return err
	}
	if l.timeFile, err = s.text("/proc/self/ns/time_for_children"); err != nil {
		return err
	}
	if p.Program != nil || p.Idle != nil {
		return nil // a Program's limits are in the plan
	}
	if l.path, err = s.text(p.Path); err != nil {
		return fmt.Errorf("path %q: %w", p.Path, err)
	}
	if l.argv, err = s.texts(p.Args); err != nil {
		return fmt.Errorf("arguments of %s: %w", p.Path, err)
	}
	if l.envv, err = s.texts(p.Env); err != nil {
		return fmt.Errorf("environment of %s: %w", p.Path, err)
	}
	// The Go runtime has raised the soft limit of this process. The new process gets the
	// limit with which this process was started.
	l.nofile = unix.Rlimit{Cur: nofile.Original[0], Max: nofile.Original[1]}
	l.limited = l.nofile.Cur < l.nofile.Max
	return nil
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
	if p.Cgroup != nil && !l.thrice { // else the process is in its cgroup before it joins anything
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
	if l.ipc {
		// The maker of the namespace is the owner of its mqueue filesystem. During the clone that is a user
		// of the host, whom the user namespace does not map.
		final.flags &^= unix.CLONE_NEWIPC
	}
	if p.Idle != nil {
		final.flags |= unix.CLONE_NEWNS
	}
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
	if l.thrice {
		l.born, l.second = final, cloneArgs{flags: unix.CLONE_PARENT}
	}
}

// pointer returns the address of an array's first element, for a system call.
//
//go:nosplit
//go:norace
func pointer(p []*byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }
