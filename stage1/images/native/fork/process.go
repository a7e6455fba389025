package fork

import (
	"os"

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
	// Root makes the process user and group 0 of its user namespace. It is set
	// where that namespace is new or joined.
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

// IDMapping is one line of uid_map or gid_map.
type IDMapping struct {
	Inside, Outside, Size uint32
}

// joins reports whether any of the flags is among the joined namespaces.
func (p *Process) joins(flags int) bool {
	for _, j := range p.Joins {
		if j.Flags&flags != 0 {
			return true
		}
	}
	return false
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
