package fork

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// step is what the child was doing when it failed.
type step uint32

const (
	cloned step = iota // not a failure: the second clone has succeeded
	stepDescriptors
	stepJoin // index: of Process.Joins
	stepClone
	stepGo
	stepTime
	stepClocks
	stepGroup
	stepUser
	stepSession
	stepDirectory
	stepReadable
	stepExec
)

func (s step) String() string {
	switch s {
	case stepDescriptors:
		return "putting its descriptors in place"
	case stepJoin:
		return "joining"
	case stepClone:
		return "creating the process in its namespaces"
	case stepGo:
		return "waiting for its id maps"
	case stepTime:
		return "creating its time namespace"
	case stepClocks:
		return "setting the clocks of its time namespace"
	case stepGroup:
		return "becoming group 0 of its user namespace"
	case stepUser:
		return "becoming user 0 of its user namespace"
	case stepSession:
		return "leading a session"
	case stepDirectory:
		return "entering its working directory"
	case stepReadable:
		return "looking whether its program can be read"
	case stepExec:
		return "executing"
	}
	return "starting"
}

// ErrReadable is the error for a Process with Unreadable that can read its program.
var ErrReadable = errors.New("processes of the user namespace could take over one whose program they can read")

// Error is a step that failed in the new process, or in its making.
type Error struct {
	Doing string // "joining network namespace /run/netns/blue"
	Errno syscall.Errno
}

// Error returns a sentence for a person.
func (e *Error) Error() string { return e.Doing + ": " + e.Errno.Error() }

// Unwrap returns the Errno.
func (e *Error) Unwrap() error { return e.Errno }

// failure translates a report of the child.
func (p *Process) failure(r *report) error {
	if r.step == stepReadable && r.errno == 0 {
		return ErrReadable
	}
	e := &Error{Doing: r.step.String(), Errno: syscall.Errno(r.errno)}
	switch {
	case r.step == stepDescriptors && e.Errno == unix.EINVAL:
		e.Errno = unix.EMFILE // fcntl(2) has another error for a number above the limit
	case r.step == stepJoin && int(r.value) < len(p.Joins):
		e.Doing += " " + p.Joins[r.value].What
	case r.step == stepExec && p.Path != "":
		e.Doing += " " + p.Path
	case r.step == stepClone:
		e.Doing = p.cloneText()
	}
	return e
}

// cloneText names everything that a failed clone should have made, because the kernel does
// not report which of several namespaces it refused.
func (p *Process) cloneText() string {
	if p.New == 0 {
		return "creating the process"
	}
	text := "creating the process with new namespaces ("
	for i, n := range names(p.New) {
		if i > 0 {
			text += ", "
		}
		text += n
	}
	return text + ")"
}

func names(flags uintptr) []string {
	all := []struct {
		flag uintptr
		name string
	}{
		{unix.CLONE_NEWUSER, "user"},
		{unix.CLONE_NEWNS, "mount"},
		{unix.CLONE_NEWPID, "pid"},
		{unix.CLONE_NEWNET, "network"},
		{unix.CLONE_NEWIPC, "ipc"},
		{unix.CLONE_NEWUTS, "uts"},
		{unix.CLONE_NEWCGROUP, "cgroup"},
	}
	var n []string
	for _, t := range all {
		if flags&t.flag != 0 {
			n = append(n, t.name)
		}
	}
	return n
}
