package pod

import (
	"context"
	"fmt"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// AppID is containerd's id of a container.
type AppID string

// ExecID is containerd's id of a process added to a container. The empty one
// means the app's first process.
type ExecID string

// Exit is how a process ended. Code is what the process returned, or 128 plus
// the signal that ended it. The zero At means that it has not ended.
type Exit struct {
	Code uint32
	At   time.Time
}

// Status is what this process knows of an app or exec.
type Status struct {
	PID      int // 0 for an exec that was not started; the old one after the end
	State    State
	Exit     Exit
	Terminal bool
	Deleting bool // a Delete is at work: the client that sent it gets the exit
	Tag      any  // of AppConfig or ExecConfig; Pod.Status returns it
}

// ProcessInfo is one process of an app. Exec is empty for the first process and
// for processes that the app made itself.
type ProcessInfo struct {
	PID  int
	Exec ExecID
}

// RootFS is an app's root file system as the client described it.
type RootFS interface {
	// Empty says that there is nothing to mount: the root is what the spec's
	// root.path names.
	Empty() bool
	// Mount mounts it on target, an existing directory. On failure nothing
	// stays mounted.
	Mount(ctx context.Context, target string) error
	// Mounts lists what Mount would mount, in order.
	Mounts() ([]abi.Mount, error)
}

// AppConfig is a request for an app.
type AppConfig struct {
	ID       AppID
	Bundle   string    // absolute; rkt.json is written here
	Spec     *spec.App // what ReadSpec has returned
	Rootfs   RootFS
	Stdio    Stdio // taken over by CreateApp, also when it fails
	Terminal bool
	Debug    bool
	Options  abi.Options
	// Checkpoint is a directory that the app is restored from, if any.
	Checkpoint string
	// Tag is the caller's: it is in the app's Status and in the events of its first
	// process.
	Tag any
}

// ExecConfig is a request for a further process in an app.
type ExecConfig struct {
	ID       ExecID
	Process  *spec.Process // what ReadProcess has returned
	Stdio    Stdio         // taken over by AddExec, also when it fails
	Terminal bool
	Tag      any // the caller's, as that of AppConfig
}

// EventKind says what happened.
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
	EventOOM    // the kernel has killed in it for want of memory
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

// Event is one thing that happened to an app or exec.
type Event struct {
	Kind EventKind
	App  AppID
	Exec ExecID
	PID  int
	Exit Exit // of EventExited and EventDeleted
	Tag  any  // of AppConfig or ExecConfig

	Checkpoint string // of EventCheckpointed: where it is
}

// Events receives a pod's events. The order of calls is the order in which they
// must reach subscribers (requirements.md#E1).
type Events interface {
	// Publish never blocks, and calls no method of the Pod.
	Publish(Event)
}

// SandboxConfig is a request for a pod that runs without apps, too: from its
// start until it is stopped.
type SandboxConfig struct {
	ID     string
	Bundle string // absolute; rkt.json is written here
	Debug  bool

	// Namespaces that the pod's apps may join: new ones, or with a path existing
	// ones. The host's are not listed.
	Hostname    string
	Namespaces  []abi.Namespace
	UIDMappings []abi.IDMapping // of the pod's user namespace, if it has one
	GIDMappings []abi.IDMapping
	// UserOf is the path of a namespace that belongs to the pod's user namespace.
	// Without one, a user namespace that is listed is a new one.
	UserOf string
	Sysctl map[string]string

	// What `run` is told of the pod. Resources is an OCI linux.resources object with the sums
	// of the limits of the pod's containers, as far as the client knows them.
	Annotations map[string]string
	Labels      map[string]string
	Resources   []byte

	SELinux     string // label of the holder
	CgroupsPath string // of the holder, as in an OCI spec
	// CgroupParent is the pod's cgroup, as a path below the root of every
	// hierarchy. The kubelet makes it and limits the pod by it; SandboxStats reads its
	// statistics. Without one they are the holder's.
	CgroupParent string

	// Files that apps get to see, and a tmpfs for their /dev/shm.
	Files []disk.SandboxFile
	Shm   disk.SandboxShm
}

// SandboxStatus is what this process knows of a sandbox.
type SandboxStatus struct {
	State     SandboxState
	PID       int // of the process that holds the namespaces; the old one after the end
	CreatedAt time.Time
	Exit      Exit
}
