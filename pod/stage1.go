package pod

import (
	"context"
	"os"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// Stage1 isolates the apps of one pod. Package stage1 implements it by
// executing the entrypoints of an image; tests implement it in memory.
//
// Every method may be called at any time and from any goroutine: the order of
// calls for one app is the pod's business. Errors of entrypoints carry their
// text; errors that unwrap to errdefs.ErrNotFound, ErrFailedPrecondition and
// ErrNotImplemented are the ABI's exit codes 5, 6 and 7.
type Stage1 interface {
	// Name is what people call the stage1: native, oci, …
	Name() string
	// Digest identifies the image: "sha512-" and 128 hexadecimal digits.
	Digest() string
	// Has reports whether the image declares an entrypoint.
	Has(abi.Entrypoint) bool
	// Owns reports whether the stage1 does by itself what a word of the image's manifest
	// names.
	Owns(abi.Own) bool
	// CheckSpec returns an error that names the first field of a config.json that
	// neither the stage1 nor stage 0 enforces, and unwraps to
	// errdefs.ErrNotImplemented. Otherwise it returns the fields that no version of the
	// spec known here has and that are ignored, for a person to read. If the operator
	// refuses these, they are errdefs.ErrInvalidArgument.
	CheckSpec(*spec.App) (unknown []string, err error)
	// CheckProcess is CheckSpec for a config.json with this process alone.
	CheckProcess(*spec.Process) (unknown []string, err error)
	// CheckResources is CheckSpec for a config.json with these limits alone.
	CheckResources(*spec.Resources) (unknown []string, err error)
	// NoteUnknown puts ignored fields of a client's document into the pod's journal.
	// The call's Request has the app, and the exec if it is of one.
	NoteUnknown(c Call, fields []string)

	// Attach makes the image's tree visible in the pod directory dir: manifest,
	// tree id and the mounts below stage1/rootfs. On failure it leaves nothing.
	Attach(dir string) error
	// Detach undoes Attach's mounts, and removes what the stage1 has left outside of the
	// directory and its gc has not removed. It is idempotent, needs no more than the
	// directory, and is called before that is removed.
	Detach(dir string) error

	// Run executes `run` and returns once the supervisor is ready. lock is the
	// locked pod directory; the caller closes its own copy afterwards.
	Run(ctx context.Context, c Call, lock *os.File) (*Supervisor, error)
	// Add executes `app/add` and returns the app's first process, blocked
	// before its exec. A nil stdio file means /dev/null.
	Add(ctx context.Context, c Call, stdio [3]*os.File) (*Process, error)
	// Enter executes `enter` and returns the process, running its program. Of the call's
	// Process, args is not empty.
	Enter(ctx context.Context, c Call, stdio [3]*os.File) (*Process, error)
	// Invoke executes any other entrypoint: c.Request.Entrypoint says which.
	Invoke(ctx context.Context, c Call) error
	// Ask is Invoke for an entrypoint that answers with a document, and returns that.
	Ask(ctx context.Context, c Call) ([]byte, error)
}

// Call is what every execution of an entrypoint needs.
type Call struct {
	Dir     string      // the pod directory, absolute
	Leader  int         // the pid that `run` reported; 0 before
	Force   bool        // stop --force
	Request abi.Request // Version is filled in by the implementation, Spec and Process are empty

	// Exactly one of these two is in the request: Spec in app/add and in the `run` of a
	// sandbox, Process in enter.
	Spec    *spec.App
	Process *spec.Process
}

// Supervisor is a stage1 that runs.
type Supervisor struct {
	PID    int       // of the process that `run` was started as
	Leader abi.Ready // what it reported
	// Notices is the read end of the notice pipe (RKT_NOTIFY_FD). End of file
	// means that the stage1 has died. The receiver closes it.
	Notices *os.File
	// Done is closed when the `run` process has ended and was reaped.
	Done <-chan struct{}
	// Signal sends a signal to the `run` process, and never to another one. Once
	// it has ended that is not an error.
	Signal func(syscall.Signal) error
	// Kill is Signal with SIGKILL.
	Kill func() error
}

// Recorder says who records the exit of a process: docs/stage1-abi.md section 6.
type Recorder int

const (
	// RecordedByStage1 means that a notice follows and the status file is there
	// before it. If the process becomes a child of this one, its wait status counts.
	RecordedByStage1 Recorder = iota
	// RecordedByStage0 means that this process, as parent or subreaper, waits for the
	// process.
	RecordedByStage0
	// RecordedByCall means that `enter` stays and Ended delivers the exit.
	RecordedByCall
)

func (r Recorder) String() string {
	return [...]string{"stage1", "stage0", "call"}[r]
}

// Process is an app's first process, or an exec's.
type Process struct {
	PID       int
	StartTime uint64 // field 22 of /proc/PID/stat, clock ticks since boot
	Recorder  Recorder
	// Console is the pty master, if a terminal was asked for. The receiver
	// closes it.
	Console *os.File
	// Signal, if set, is sent every signal in place of PID, which then is not the app's
	// alone, and SIGWINCH whenever Console was given a size. It returns an error that
	// unwraps to errdefs.ErrNotFound while there is nothing to signal.
	Signal func(syscall.Signal) error
	// Becomes, if set, delivers the process that takes the place of this one, if there
	// is one, before app/start returns.
	Becomes <-chan abi.Ready
	// Ended delivers one Status if Recorder is RecordedByCall. If Recorder is
	// RecordedByStage1 it may deliver one, too, which counts if the stage1 has not
	// announced any by then. Otherwise it is nil.
	Ended <-chan abi.Status
}
