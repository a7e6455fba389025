package fork

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Process describes a process for Start. Exactly one of Exe and Path is set.
type Process struct {
	Exe  *os.File // executed by descriptor
	Path string   // executed by path
	Args []string // with argv[0]
	Env  []string
	Dir  *os.File // working directory; nil is the caller's

	// Files[i] becomes descriptor i. The process gets no others.
	Files []*os.File

	Joins []Join  // existing namespaces, joined in this order
	New   uintptr // new namespaces: CLONE_NEW* flags
	// Clocks are the offsets of a new time namespace, as timens_offsets takes them
	// (time_namespaces(7)): New has CLONE_NEWTIME. Empty leaves the clocks alone.
	Clocks []byte

	// The maps of a new user namespace: New has CLONE_NEWUSER.
	UIDMappings, GIDMappings []IDMapping
	// Root makes the process user and group 0 of its user namespace. It is used
	// if that namespace is made or joined.
	Root bool
	// Unreadable makes Start return ErrReadable instead of executing an Exe that the
	// process may read. When a process executes a program that it may not read, the kernel
	// makes it undumpable, and its memory belongs to the host's user namespace: no process
	// of its own user namespace can trace it or open its files in /proc (would_dump in
	// fs/exec.c of the kernel). The execution of any other program makes it dumpable.
	Unreadable bool

	// Cgroup is a directory of cgroup version 2 into which the process is cloned, or nil.
	// If the process joins a user namespace and makes New namespaces, root must own it.
	Cgroup *os.File
	// Apart keeps the parent's descriptors out of a process that the cgroup's
	// freezer may stop before its first instruction.
	Apart bool
}

// Join is a namespace to join by setns(2): a file of /proc/PID/ns with one of
// the CLONE_NEW* flags, or a pidfd with any number of them.
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

// joins reports whether any of the flags is among the joined namespaces.
func (p *Process) joins(flags int) bool {
	return slices.ContainsFunc(p.Joins, func(j Join) bool { return j.Flags&flags != 0 })
}

// twice reports whether a second clone has to make the process.
func (p *Process) twice() bool {
	return p.joins(unix.CLONE_NEWUSER|unix.CLONE_NEWPID) ||
		p.New&unix.CLONE_NEWUSER != 0 && len(p.Joins) > 0 ||
		p.Apart
}

// awaited reports whether the process waits for the parent: until its id maps are written,
// or until the parent knows its pid.
func (p *Process) awaited() bool {
	return p.twice() || p.New&unix.CLONE_NEWUSER != 0
}
