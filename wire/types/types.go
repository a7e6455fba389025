// Package types has messages that several of containerd's services use, field for field, as package
// wire reads and writes them.
package types

import (
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Mount is a mount of a container's root file system.
type Mount struct {
	Type    string   `protobuf:"bytes,1"`
	Source  string   `protobuf:"bytes,2"`
	Target  string   `protobuf:"bytes,3"`
	Options []string `protobuf:"bytes,4"`
}

// Envelope is an event on its way to containerd.
type Envelope struct {
	Timestamp *timestamppb.Timestamp `protobuf:"bytes,1"`
	Namespace string                 `protobuf:"bytes,2"`
	Topic     string                 `protobuf:"bytes,3"`
	Event     *anypb.Any             `protobuf:"bytes,4"`
}

// Metric has statistics at one time.
type Metric struct {
	Timestamp *timestamppb.Timestamp `protobuf:"bytes,1"`
	ID        string                 `protobuf:"bytes,2"`
	Data      *anypb.Any             `protobuf:"bytes,3"`
}

// Platform is what programs are built for.
type Platform struct {
	OS           string   `protobuf:"bytes,1"`
	Architecture string   `protobuf:"bytes,2"`
	Variant      string   `protobuf:"bytes,3"`
	OSVersion    string   `protobuf:"bytes,4"`
	OSFeatures   []string `protobuf:"bytes,5"`
}

// ProcessInfo is a process of a container.
type ProcessInfo struct {
	Pid  uint32     `protobuf:"varint,1"`
	Info *anypb.Any `protobuf:"bytes,2"`
}

// RuntimeInfo describes a runtime and what it can do.
type RuntimeInfo struct {
	Name        string            `protobuf:"bytes,1"`
	Version     *RuntimeVersion   `protobuf:"bytes,2"`
	Options     *anypb.Any        `protobuf:"bytes,3"`
	Features    *anypb.Any        `protobuf:"bytes,4"`
	Annotations map[string]string `protobuf:"bytes,5"`
}

// RuntimeVersion is the version of a runtime.
type RuntimeVersion struct {
	Version  string `protobuf:"bytes,1"`
	Revision string `protobuf:"bytes,2"`
}

// ForwardRequest hands an event to containerd.
type ForwardRequest struct {
	Envelope *Envelope `protobuf:"bytes,1"`
}

// Status is the state of a process.
type Status int32

// The states that a process can have.
const (
	StatusUnknown Status = iota
	StatusCreated
	StatusRunning
	StatusStopped
	StatusPaused
	StatusPausing
)
