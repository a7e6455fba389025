package pod

import (
	"context"
	"fmt"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// AppID is containerd's id of a container.
type AppID string

// ExecID is containerd's id of a process added to a container. The empty one
// means the app's first process.
type ExecID string

// Exit is the end of a process. Code is the exit code, or 128 plus the signal that
// ended the process. A zero At means that the process has not ended.
type Exit struct {
	Code uint32
	At   time.Time
}

// Status is the status of an app or exec.
type Status struct {
	PID      int // 0 for an exec that was not started; after the end the former pid
	State    State
	Exit     Exit
	Terminal bool
	Deleting bool // a Delete is in progress; the client that sent it gets the exit
	Tag      any  // of AppConfig or ExecConfig; Pod.Status returns it
}

// ProcessInfo is one process of an app. Exec is empty for the first process and for
// its descendants.
type ProcessInfo struct {
	PID  int
	Exec ExecID
}

// RootFS is an app's root file system as the client has described it.
type RootFS interface {
	// Empty reports whether there is nothing to mount. The root is then the directory
	// of the spec's root.path.
	Empty() bool
	// Mount mounts the root on target, an existing directory. If it fails, nothing
	// stays mounted.
	Mount(ctx context.Context, target string) error
	// Mounts lists what Mount would mount, in order.
	Mounts() ([]abi.Mount, error)
}

// AppConfig is a request for an app.
type AppConfig struct {
	ID       AppID
	Bundle   string    // absolute; rkt.json is written here
	Spec     *spec.App // result of ReadSpec
	Rootfs   RootFS
	Stdio    Stdio // CreateApp takes ownership, even if it fails
	Terminal bool
	Debug    bool
	Options  abi.Options
	// Arrived are the names of the options that the client has sent. They are recorded on
	// disk for people.
	Arrived []string
	// Checkpoint is a directory from which the app is restored, or empty.
	Checkpoint string
	// Tag belongs to the caller. It is returned in the app's Status and in the events
	// of its first process.
	Tag any

	events Events // of a debug app, in place of the pod's
}

// ExecConfig is a request for a further process in an app.
type ExecConfig struct {
	ID       ExecID
	Process  *spec.Process // result of ReadProcess
	Stdio    Stdio         // AddExec takes ownership, even if it fails
	Terminal bool
	Tag      any // belongs to the caller, as in AppConfig
}

// EventKind is the kind of an event.
type EventKind int

// The events of an app, in the order in which they can happen.
const (
	EventCreated EventKind = iota
	EventStarted
	EventExecAdded
	EventExecStarted
	EventPaused
	EventResumed
	EventCheckpointed
	EventOOM    // the kernel has killed a process because memory ran out
	EventExited // of the app's first process, or of an exec
	EventDeleted
)

var eventNames = [...]string{"created", "started", "exec-added", "exec-started", "paused", "resumed", "checkpointed", "oom", "exited", "deleted"}

func (k EventKind) String() string {
	if k < 0 || int(k) >= len(eventNames) {
		return fmt.Sprintf("event %d", int(k))
	}
	return eventNames[k]
}

// Event is an event of an app or exec.
type Event struct {
	Kind EventKind
	App  AppID
	Exec ExecID
	PID  int
	Exit Exit // of EventExited and EventDeleted
	Tag  any  // of AppConfig or ExecConfig

	Checkpoint string // of EventCheckpointed: the directory
}

// Events receives a pod's events. Subscribers must get them in the order of the calls
// (requirements.md#E1).
type Events interface {
	// Publish never blocks, and calls no method of the Pod.
	Publish(Event)
}

// SandboxConfig is a request for a pod that exists without apps, from its start until
// it is stopped.
type SandboxConfig struct {
	ID     string
	Bundle string // absolute; rkt.json is written here
	Debug  bool

	// Namespaces that the pod's apps may join. A namespace with a path exists already;
	// others are made. Namespaces that the pod shares with the host are not listed.
	Hostname    string
	Namespaces  []abi.Namespace
	UIDMappings []abi.IDMapping // of the pod's user namespace, if it has one
	GIDMappings []abi.IDMapping
	// UserOf is the path of a namespace that belongs to the pod's user namespace. If
	// it is empty, a listed user namespace is a new one.
	UserOf string
	Sysctl map[string]string

	// These are passed to `run`. Resources is an OCI linux.resources object with the sums of
	// the limits of the pod's containers, as far as the client knows them.
	Annotations map[string]string
	Labels      map[string]string
	Resources   []byte

	SELinux     string // label of the holder
	CgroupsPath string // of the holder, as in an OCI spec
	// CgroupParent is the pod's cgroup, as a path below the root of every hierarchy.
	// The kubelet makes it and sets the pod's limits in it. SandboxStats reads its
	// statistics. If it is empty, the statistics are those of the holder's cgroup.
	CgroupParent string

	// Files that apps see, and a tmpfs for their /dev/shm.
	Files []disk.SandboxFile
	Shm   disk.SandboxShm

	// KeepExits makes the deletion of an app leave its exit in rkt.json in its bundle, for a client
	// that reads it after the pod has gone.
	KeepExits bool
}

// SandboxStatus is the status of a sandbox.
type SandboxStatus struct {
	State     SandboxState
	PID       int // of the process that holds the namespaces; the old one after the end
	CreatedAt time.Time
	Exit      Exit
}

// DebugFacts are the facts of a debug app that its maker needs.
type DebugFacts struct {
	ID AppID
	// Dir is the directory of the debug app, which is also its bundle. The caller makes
	// config.json in it before Create. End removes it with all files.
	Dir string
	// Namespaces are those of the target that a process of the host has to join. Their
	// paths are valid until Create has returned.
	Namespaces []specs.LinuxNamespace
	// CgroupsPath is the path of the debug app's cgroup, beside the target's.
	CgroupsPath string
}

// DebugConfig is a request to make the app of a DebugApp.
type DebugConfig struct {
	Spec     []byte // text of config.json
	Rootfs   RootFS
	Stdio    Stdio // Create takes ownership, even if it fails
	Terminal bool
	Events   Events // gets the events of the debug app, in place of the pod's
	Tag      any    // as in AppConfig
}

// DebugNote is what the journal keeps of a debug app.
type DebugNote struct {
	Target string // id of the container
	Began  time.Time
	UID    uint32 // of the login session of the user
	Login  string // the user's name, as rktctl knows it
	PID    int    // of rktctl
	Image  string // reference
	Digest string // of the image
	Ended  *Exit  // nil at the beginning
}
