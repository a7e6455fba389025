package fork

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Process describes a process for Start, with either Exe or Path, or for Begin, with Program or Idle.
type Process struct {
	Exe  *os.File // executed by descriptor
	Path string   // executed by path
	Args []string // with argv[0]
	Env  []string
	Dir  *os.File // working directory; nil: the caller's

	// Program is executed in place of Exe or Path, with its own arguments and environment.
	Program *Program
	// Idle is done in place of executing anything, or nil.
	Idle *Idle
	// Born is called when the process exists in its namespaces and waits, or is nil. If it
	// returns an error, the process is given up.
	Born func(pid int) error

	// Files[i] becomes descriptor i. The process gets no other descriptors.
	Files []*os.File
	// Tasks are the paths of `tasks` files of cgroups of version 1. The process opens them for
	// writing before it joins namespaces. If it has a Program or an Idle, it enters these cgroups,
	// and closes the files before it looks at files of the app. Otherwise Tasks[i] becomes the
	// descriptor FirstTask(len(Files))+i of Exe or Path, which has to do that.
	Tasks []string
	// Devices is the `tasks` file of the devices cgroup of version 1, or "". The process enters that cgroup before it joins
	// namespaces. An Exe or Path enters those of Tasks itself, but a program may open files of the app before its
	// first instruction of ours, as Go's runtime does.
	Devices string

	Joins []Join  // existing namespaces, joined in this order
	New   uintptr // new namespaces: CLONE_NEW* flags
	// Clocks are the offsets of a new time namespace, in the format of timens_offsets
	// (time_namespaces(7)). They need CLONE_NEWTIME in New. If Clocks is empty, the clocks
	// keep their values.
	Clocks []byte

	// The maps of a new user namespace. They need CLONE_NEWUSER in New.
	UIDMappings, GIDMappings []IDMapping
	// Root makes the process user and group 0 of its user namespace. It is set if that
	// namespace is made or joined.
	Root bool
	// Unreadable makes Start return ErrReadable if the process may read Exe. When a
	// process executes a program that it may not read, the kernel makes the process
	// undumpable. Then only a process with privileges over the host's user namespace can
	// trace it or open its files in /proc (would_dump in fs/exec.c of the kernel). The
	// execution of any other program makes the process dumpable.
	Unreadable bool

	// Cgroup is a directory of cgroup version 2 into which the process is cloned, or nil.
	// If the process joins a user namespace and makes New namespaces, root must own it.
	Cgroup *os.File
	// Apart keeps the parent's descriptors out of a process that the freezer of the cgroup
	// may stop before its first instruction.
	Apart bool
}

// FirstTask returns the descriptor of the first of Tasks in a process with so many Files.
func FirstTask(files int) int { return files + 1 } // between them is the socket of the reports

// Join is a namespace to join with setns(2). File is a file of /proc/PID/ns, for one of
// the CLONE_NEW* flags, or a pidfd, for any number of them.
type Join struct {
	What  string // for errors: "network namespace /run/netns/blue"
	File  *os.File
	Flags int
}

// Namespace is a type of namespace.
type Namespace struct {
	Name string // in specs and errors
	Flag int    // CLONE_NEW*
	File string // in /proc/PID/ns
}

// Namespaces returns the types of namespaces.
func Namespaces() []Namespace {
	return []Namespace{
		{"user", unix.CLONE_NEWUSER, "user"},
		{"mount", unix.CLONE_NEWNS, "mnt"},
		{"pid", unix.CLONE_NEWPID, "pid"},
		{"network", unix.CLONE_NEWNET, "net"},
		{"ipc", unix.CLONE_NEWIPC, "ipc"},
		{"uts", unix.CLONE_NEWUTS, "uts"},
		{"cgroup", unix.CLONE_NEWCGROUP, "cgroup"},
		{"time", unix.CLONE_NEWTIME, "time"},
	}
}

// IDMapping is one line of uid_map or gid_map.
type IDMapping struct {
	Inside, Outside, Size uint32
}

// joins reports whether the process joins a namespace of one of these flags.
func (p *Process) joins(flags int) bool {
	return slices.ContainsFunc(p.Joins, func(j Join) bool { return j.Flags&flags != 0 })
}

// twice reports whether the process has to be made by a second clone.
func (p *Process) twice() bool {
	return p.joins(unix.CLONE_NEWUSER|unix.CLONE_NEWPID) ||
		p.New&unix.CLONE_NEWUSER != 0 && len(p.Joins) > 0 ||
		p.Apart
}

// outside reports whether the process gets the identity of its Program before the last clone, and so
// before a process of a container can see it. The first process of an app cannot: it needs its rights
// inside.
func (p *Process) outside() bool {
	return p.twice() && p.New == 0 && p.Program != nil && p.Program.First == nil
}

// thrice reports whether the process enters its cgroup by a clone that is not the last one.
func (p *Process) thrice() bool { return p.outside() && p.Cgroup != nil }

// awaited reports whether the process waits until its parent has written its id maps or
// knows its pid.
func (p *Process) awaited() bool {
	return p.twice() || p.New&unix.CLONE_NEWUSER != 0 || p.Born != nil
}
