// Package events has the events of tasks that containerd publishes, field for field, as package
// wire reads and writes them.
package events

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// Prefix is before the name of an event's type in the URL of its Any.
const Prefix = "containerd.events."

// TaskCreate is published when a container was created.
type TaskCreate struct {
	ContainerID string         `protobuf:"bytes,1"`
	Bundle      string         `protobuf:"bytes,2"`
	Rootfs      []*types.Mount `protobuf:"bytes,3"`
	IO          *TaskIO        `protobuf:"bytes,4"`
	Checkpoint  string         `protobuf:"bytes,5"`
	Pid         uint32         `protobuf:"varint,6"`
}

// TaskStart is published when a container's program was started.
type TaskStart struct {
	ContainerID string `protobuf:"bytes,1"`
	Pid         uint32 `protobuf:"varint,2"`
}

// TaskDelete is published when a container was deleted.
type TaskDelete struct {
	ContainerID string                 `protobuf:"bytes,1"`
	Pid         uint32                 `protobuf:"varint,2"`
	ExitStatus  uint32                 `protobuf:"varint,3"`
	ExitedAt    *timestamppb.Timestamp `protobuf:"bytes,4"`
	ID          string                 `protobuf:"bytes,5"`
}

// TaskIO has the streams of a container.
type TaskIO struct {
	Stdin    string `protobuf:"bytes,1"`
	Stdout   string `protobuf:"bytes,2"`
	Stderr   string `protobuf:"bytes,3"`
	Terminal bool   `protobuf:"varint,4"`
}

// TaskExit is published when a process has ended. ID is that of the container, or of the exec.
type TaskExit struct {
	ContainerID string                 `protobuf:"bytes,1"`
	ID          string                 `protobuf:"bytes,2"`
	Pid         uint32                 `protobuf:"varint,3"`
	ExitStatus  uint32                 `protobuf:"varint,4"`
	ExitedAt    *timestamppb.Timestamp `protobuf:"bytes,5"`
}

// TaskOOM is published when the kernel has killed a process of the container for want of memory.
type TaskOOM struct {
	ContainerID string `protobuf:"bytes,1"`
}

// TaskExecAdded is published when an exec was added.
type TaskExecAdded struct {
	ContainerID string `protobuf:"bytes,1"`
	ExecID      string `protobuf:"bytes,2"`
}

// TaskExecStarted is published when an exec's program was started.
type TaskExecStarted struct {
	ContainerID string `protobuf:"bytes,1"`
	ExecID      string `protobuf:"bytes,2"`
	Pid         uint32 `protobuf:"varint,3"`
}

// TaskPaused is published when a container was paused.
type TaskPaused struct {
	ContainerID string `protobuf:"bytes,1"`
}

// TaskResumed is published when a paused container goes on.
type TaskResumed struct {
	ContainerID string `protobuf:"bytes,1"`
}

// TaskCheckpointed is published when a checkpoint of a container was made.
type TaskCheckpointed struct {
	ContainerID string `protobuf:"bytes,1"`
	Checkpoint  string `protobuf:"bytes,2"`
}
