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
// Every method may be called at any time and from any goroutine, because the pod decides
// the order of calls for an app. Errors of entrypoints have the entrypoint's text. The
// ABI's exit codes 5, 6 and 7 unwrap to errdefs.ErrNotFound, ErrFailedPrecondition and
// ErrNotImplemented.
type Stage1 interface {
	// Name returns the name by which people know the stage1: native, oci, …
	Name() string
	// Digest identifies the image: "sha512-" and 128 hexadecimal digits.
	Digest() string
	// Has reports whether the image declares an entrypoint.
	Has(abi.Entrypoint) bool
	// Owns reports whether the stage1 does by itself what a word of the image's manifest
	// names.
	Owns(abi.Own) bool
	// CheckSpec refuses a config.json that uses a field that neither the stage1 nor
	// stage 0 enforces. The error names the first such field and unwraps to
	// errdefs.ErrNotImplemented. Fields that no known version of the OCI spec has are
	// ignored: CheckSpec returns texts for people that name them. If the operator
	// refuses such fields, it returns an error that unwraps to
	// errdefs.ErrInvalidArgument.
	CheckSpec(*spec.App) (unknown []string, err error)
	// CheckProcess is CheckSpec for a config.json that has only this process.
	CheckProcess(*spec.Process) (unknown []string, err error)
	// CheckResources is CheckSpec for a config.json that has only these limits.
	CheckResources(*spec.Resources) (unknown []string, err error)
	// NoteUnknown writes the ignored fields of a client's document to the pod's journal.
	// The call's Request names the app and, for an exec's document, the exec.
	NoteUnknown(c Call, fields []string)
	// NoteDebug writes who debugs an app to the pod's journal. The call's Request names
	// the app.
	NoteDebug(c Call, n DebugNote)

	// Attach makes the image's tree visible in the pod directory dir: the manifest, the
	// tree id and the mounts below stage1/rootfs. If it fails, nothing remains.
	Attach(dir string) error
	// Detach undoes Attach's mounts. It also removes things that the stage1 has left
	// outside of the directory, if gc has not removed them. It is idempotent, needs only
	// the directory, and is called before the directory is removed.
	Detach(dir string) error

	// Run executes `run` and returns when the supervisor is ready. lock is the locked
	// pod directory; the caller closes its own descriptor of it afterwards.
	Run(ctx context.Context, c Call, lock *os.File) (*Supervisor, error)
	// Add executes `app/add` and returns the app's first process, blocked
	// before its exec. A nil stdio file means /dev/null.
	Add(ctx context.Context, c Call, stdio [3]*os.File) (*Process, error)
	// Enter executes `enter` and returns the process, which runs its program. args in
	// the call's Process must not be empty.
	Enter(ctx context.Context, c Call, stdio [3]*os.File) (*Process, error)
	// Invoke executes any other entrypoint, which c.Request.Entrypoint names.
	Invoke(ctx context.Context, c Call) error
	// Ask is Invoke for an entrypoint that answers with a document, and returns that.
	Ask(ctx context.Context, c Call) ([]byte, error)
}

// Call has the arguments of every execution of an entrypoint.
type Call struct {
	Dir     string      // the pod directory, absolute
	Leader  int         // the pid that `run` reported; 0 before
	Force   bool        // stop --force
	Request abi.Request // Version is filled in by the implementation, Spec and Process are empty

	// Spec is set for app/add and for the `run` of a sandbox, and Process for enter. With abi.OwnNamespaces, the `run` of
	// another pod has the first app's.
	// They become part of the request.
	Spec    *spec.App
	Process *spec.Process
}

// Supervisor is the process of `run`.
type Supervisor struct {
	PID    int       // of the process as which `run` was started
	Leader abi.Ready // what it reported
	// Notices is the read end of the notice pipe (RKT_NOTIFY_FD). End of file
	// means that the stage1 has died. The receiver closes it.
	Notices *os.File
	// Done is closed when the `run` process has ended and was reaped.
	Done <-chan struct{}
	// Signal sends a signal to the `run` process, and never to another one. If the
	// process has ended, it returns nil.
	Signal func(syscall.Signal) error
	// Kill is Signal with SIGKILL.
	Kill func() error
}

// Recorder says which program records the exit of a process: docs/stage1-abi.md, section
// 6.
type Recorder int

const (
	// RecordedByStage1 means that the stage1 writes the status file and then sends a
	// notice. If the process becomes a child of this one, its wait status counts.
	RecordedByStage1 Recorder = iota
	// RecordedByStage0 means that this process, as parent or subreaper, waits for the
	// process.
	RecordedByStage0
	// RecordedByCall means that the process of `enter` stays, and Ended delivers the
	// exit.
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
	// OwnCgroup means that PID may be outside of the app's cgroup: the systemd in an image of rkt's ABI
	// makes the cgroups of the pod's processes. Only such a stage1 may set it.
	OwnCgroup bool
	// Console is the pty master, if a terminal was asked for. The receiver
	// closes it.
	Console *os.File
	// Signal, if set, is called with every signal in place of signalling PID, because
	// PID does not belong to the app alone. It is also called with SIGWINCH whenever
	// Console gets a new size. If there is no process to signal, its error unwraps to
	// errdefs.ErrNotFound.
	Signal func(syscall.Signal) error
	// Becomes, if set, delivers the process that replaces this one, if there is one. It
	// does so before app/start returns.
	Becomes <-chan abi.Ready
	// Ended delivers one Status if Recorder is RecordedByCall. If Recorder is
	// RecordedByStage1, it may deliver one, which counts if the stage1 has not announced
	// another one before. Otherwise it is nil.
	Ended <-chan abi.Status
}
