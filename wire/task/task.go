// Package task has the messages of containerd's Task service, field for field, as package wire
// reads and writes them. containerd's own package links those of images and of statistics, with
// their regular expressions and descriptors. docs/adr/0047-messages-are-plain-structs.md has the figures.
package task

import (
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// CreateTaskRequest asks for a container that is blocked before its program. Options are those of the runtime.
type CreateTaskRequest struct {
	ID               string         `protobuf:"bytes,1"`
	Bundle           string         `protobuf:"bytes,2"`
	Rootfs           []*types.Mount `protobuf:"bytes,3"`
	Terminal         bool           `protobuf:"varint,4"`
	Stdin            string         `protobuf:"bytes,5"`
	Stdout           string         `protobuf:"bytes,6"`
	Stderr           string         `protobuf:"bytes,7"`
	Checkpoint       string         `protobuf:"bytes,8"`
	ParentCheckpoint string         `protobuf:"bytes,9"`
	Options          *anypb.Any     `protobuf:"bytes,10"`
}

// CreateTaskResponse has the pid of the container's first process.
type CreateTaskResponse struct {
	Pid uint32 `protobuf:"varint,1"`
}

// DeleteRequest names a process that has ended: a container, or an exec of it.
type DeleteRequest struct {
	ID     string `protobuf:"bytes,1"`
	ExecID string `protobuf:"bytes,2"`
}

// DeleteResponse says how the deleted process has ended.
type DeleteResponse struct {
	Pid        uint32                 `protobuf:"varint,1"`
	ExitStatus uint32                 `protobuf:"varint,2"`
	ExitedAt   *timestamppb.Timestamp `protobuf:"bytes,3"`
}

// ExecProcessRequest adds a process to a container. Spec is an OCI process in JSON.
type ExecProcessRequest struct {
	ID       string     `protobuf:"bytes,1"`
	ExecID   string     `protobuf:"bytes,2"`
	Terminal bool       `protobuf:"varint,3"`
	Stdin    string     `protobuf:"bytes,4"`
	Stdout   string     `protobuf:"bytes,5"`
	Stderr   string     `protobuf:"bytes,6"`
	Spec     *anypb.Any `protobuf:"bytes,7"`
}

// ResizePtyRequest sets the size of a terminal in characters.
type ResizePtyRequest struct {
	ID     string `protobuf:"bytes,1"`
	ExecID string `protobuf:"bytes,2"`
	Width  uint32 `protobuf:"varint,3"`
	Height uint32 `protobuf:"varint,4"`
}

// StateRequest names a container, or an exec of it.
type StateRequest struct {
	ID     string `protobuf:"bytes,1"`
	ExecID string `protobuf:"bytes,2"`
}

// StateResponse describes a process and its streams.
type StateResponse struct {
	ID         string                 `protobuf:"bytes,1"`
	Bundle     string                 `protobuf:"bytes,2"`
	Pid        uint32                 `protobuf:"varint,3"`
	Status     types.Status           `protobuf:"varint,4"`
	Stdin      string                 `protobuf:"bytes,5"`
	Stdout     string                 `protobuf:"bytes,6"`
	Stderr     string                 `protobuf:"bytes,7"`
	Terminal   bool                   `protobuf:"varint,8"`
	ExitStatus uint32                 `protobuf:"varint,9"`
	ExitedAt   *timestamppb.Timestamp `protobuf:"bytes,10"`
	ExecID     string                 `protobuf:"bytes,11"`
}

// KillRequest sends a signal. All means all processes of the container.
type KillRequest struct {
	ID     string `protobuf:"bytes,1"`
	ExecID string `protobuf:"bytes,2"`
	Signal uint32 `protobuf:"varint,3"`
	All    bool   `protobuf:"varint,4"`
}

// CloseIORequest ends the input of a process.
type CloseIORequest struct {
	ID     string `protobuf:"bytes,1"`
	ExecID string `protobuf:"bytes,2"`
	Stdin  bool   `protobuf:"varint,3"`
}

// PidsRequest names a container.
type PidsRequest struct {
	ID string `protobuf:"bytes,1"`
}

// PidsResponse lists the processes of a container.
type PidsResponse struct {
	Processes []*types.ProcessInfo `protobuf:"bytes,1"`
}

// CheckpointTaskRequest asks for a checkpoint. Options are runc's.
type CheckpointTaskRequest struct {
	ID      string     `protobuf:"bytes,1"`
	Path    string     `protobuf:"bytes,2"`
	Options *anypb.Any `protobuf:"bytes,3"`
}

// UpdateTaskRequest changes the limits of a container. Resources are the OCI spec's in JSON.
type UpdateTaskRequest struct {
	ID          string            `protobuf:"bytes,1"`
	Resources   *anypb.Any        `protobuf:"bytes,2"`
	Annotations map[string]string `protobuf:"bytes,3"`
}

// StartRequest names a container, or an exec of it.
type StartRequest struct {
	ID     string `protobuf:"bytes,1"`
	ExecID string `protobuf:"bytes,2"`
}

// StartResponse has the pid of the started process.
type StartResponse struct {
	Pid uint32 `protobuf:"varint,1"`
}

// WaitRequest names a container, or an exec of it.
type WaitRequest struct {
	ID     string `protobuf:"bytes,1"`
	ExecID string `protobuf:"bytes,2"`
}

// WaitResponse says how the process has ended.
type WaitResponse struct {
	ExitStatus uint32                 `protobuf:"varint,1"`
	ExitedAt   *timestamppb.Timestamp `protobuf:"bytes,2"`
}

// StatsRequest names a container.
type StatsRequest struct {
	ID string `protobuf:"bytes,1"`
}

// StatsResponse has a message of package cgroup1 or cgroup2.
type StatsResponse struct {
	Stats *anypb.Any `protobuf:"bytes,1"`
}

// ConnectRequest names a container, or any other id.
type ConnectRequest struct {
	ID string `protobuf:"bytes,1"`
}

// ConnectResponse has the pids of the shim and of the container.
type ConnectResponse struct {
	ShimPid uint32 `protobuf:"varint,1"`
	TaskPid uint32 `protobuf:"varint,2"`
	Version string `protobuf:"bytes,3"`
}

// ShutdownRequest names the container that was deleted last.
type ShutdownRequest struct {
	ID  string `protobuf:"bytes,1"`
	Now bool   `protobuf:"varint,2"`
}

// PauseRequest names a container.
type PauseRequest struct {
	ID string `protobuf:"bytes,1"`
}

// ResumeRequest names a container.
type ResumeRequest struct {
	ID string `protobuf:"bytes,1"`
}
