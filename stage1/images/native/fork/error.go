package fork

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// step is a step of the child. In an Error it is the step that failed.
type step uint32

const (
	cloned    step = iota // no failure: the second clone has succeeded
	helping               // no failure: the clone of the process that makes the last clone has succeeded
	executing             // no failure: a Program is executed next
	terminal              // no failure: the packet has the master of a Program's terminal
	procfs                // no failure: the packet has one of First.Procfs
	waiting               // no failure: the process waits for Begun.Go
	stepDescriptors
	stepTasks // index: of Process.Tasks
	stepForget
	stepJoin // index: of Process.Joins
	stepClone
	stepGo
	stepTime
	stepClocks
	stepGroup
	stepUser
	stepIPC
	stepSession
	stepDirectory
	stepReadable
	stepExec
	stepSignals
	// Steps of a Program.
	stepCgroup
	stepCgroupNamespace
	stepProcfs
	stepRoot
	stepLabel
	stepTerminal
	stepKeyring
	stepHome
	stepOwner
	stepNoNewPrivileges
	stepCapabilities
	stepLookUp
	stepLimit
	stepFilter
)

func (s step) String() string {
	texts := [...]string{
		cloned:          "starting",
		stepDescriptors: "putting its descriptors in place",
		stepTasks:       "opening",
		stepForget:      "forgetting the memory of its parent",
		stepJoin:        "joining",
		stepClone:       "creating the process in its namespaces",
		stepGo:          "waiting for its id maps",
		stepTime:        "creating its time namespace",
		stepClocks:      "setting the clocks of its time namespace",
		stepGroup:       "becoming group 0 of its user namespace",
		stepUser:        "becoming user 0 of its user namespace",
		stepIPC:         "creating its IPC namespace",
		stepSession:     "leading a session",
		stepDirectory:   "entering its working directory",
		stepReadable:    "looking whether its program can be read",
		stepExec:        "executing",
		stepSignals:     "blocking its signals",

		stepCgroup:          "entering its cgroups",
		stepCgroupNamespace: "creating its cgroup namespace",
		stepProcfs:          "opening a procfs",
		stepRoot:            "entering its root",
		stepLabel:           "setting its label",
		stepTerminal:        "making its terminal",
		stepKeyring:         "joining its session keyring",
		stepHome:            "looking for the home directory",
		stepOwner:           "becoming the owner of its files",
		stepNoNewPrivileges: "setting no_new_privs",
		stepCapabilities:    "setting its capabilities",
		stepLookUp:          "looking for the program",
		stepLimit:           "setting its limits",
		stepFilter:          "loading its seccomp filter",
	}
	if int(s) < len(texts) {
		return texts[s]
	}
	return texts[cloned]
}

// ErrReadable is the error for a Process with Unreadable that can read its program.
var ErrReadable = errors.New("processes of the user namespace could take over one whose program they can read")

// Error is the failure of a step in the new process, or of the clone.
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
		e.Errno = unix.EMFILE // above the limit, fcntl(2) returns another error
	case r.step == stepTasks && int(r.value) < len(p.Tasks):
		e.Doing += " " + p.Tasks[r.value]
	case r.step == stepJoin && int(r.value) < len(p.Joins):
		e.Doing += " " + p.Joins[r.value].What
	case r.step == stepExec && p.Path != "":
		e.Doing += " " + p.Path
	case r.step == stepExec && p.Program != nil && p.Program.First != nil && int(r.value) < len(p.Program.Paths):
		e.Doing = "exec " + p.Program.Paths[r.value] // the error of os/exec
	case r.step == stepClone:
		e.Doing = p.cloneText()
	}
	return e
}

// cloneText names everything that a failed clone should have made, because the kernel does
// not report which namespace it has refused.
func (p *Process) cloneText() string {
	if p.New == 0 {
		return "creating the process"
	}
	var names []string
	for _, n := range Namespaces() {
		if p.New&^unix.CLONE_NEWTIME&uintptr(n.Flag) != 0 { // the child makes a time namespace later
			names = append(names, n.Name)
		}
	}
	return "creating the process with new namespaces (" + strings.Join(names, ", ") + ")"
}
