package sandbox

import (
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// CreateSandboxRequest asks for a pod without processes. Options describe it: CRI's message, or nothing.
type CreateSandboxRequest struct {
	SandboxId   string            `protobuf:"bytes,1"`
	BundlePath  string            `protobuf:"bytes,2"`
	Options     *anypb.Any        `protobuf:"bytes,4"`
	NetnsPath   string            `protobuf:"bytes,5"`
	Annotations map[string]string `protobuf:"bytes,6"`
}

// CreateSandboxResponse says that the pod was made.
type CreateSandboxResponse struct{}

// StartSandboxRequest names a pod.
type StartSandboxRequest struct {
	SandboxId string `protobuf:"bytes,1"`
}

// StartSandboxResponse has the process that holds the pod's namespaces.
type StartSandboxResponse struct {
	Pid       uint32                 `protobuf:"varint,1"`
	CreatedAt *timestamppb.Timestamp `protobuf:"bytes,2"`
	Spec      *anypb.Any             `protobuf:"bytes,3"`
}

// PlatformRequest names a pod.
type PlatformRequest struct {
	SandboxId string `protobuf:"bytes,1"`
}

// PlatformResponse says what the pod's programs are built for.
type PlatformResponse struct {
	Platform *types.Platform `protobuf:"bytes,1"`
}

// StopSandboxRequest names a pod, and how long its containers have to end.
type StopSandboxRequest struct {
	SandboxId   string `protobuf:"bytes,1"`
	TimeoutSecs uint32 `protobuf:"varint,2"`
}

// StopSandboxResponse says that the pod's processes have ended.
type StopSandboxResponse struct{}

// UpdateSandboxRequest names a pod. Its other fields are not read.
type UpdateSandboxRequest struct {
	SandboxId string `protobuf:"bytes,1"`
}

// UpdateSandboxResponse says that nothing was to be done.
type UpdateSandboxResponse struct{}

// WaitSandboxRequest names a pod.
type WaitSandboxRequest struct {
	SandboxId string `protobuf:"bytes,1"`
}

// WaitSandboxResponse says how the pod has ended.
type WaitSandboxResponse struct {
	ExitStatus uint32                 `protobuf:"varint,1"`
	ExitedAt   *timestamppb.Timestamp `protobuf:"bytes,2"`
}

// SandboxStatusRequest names a pod. Verbose asks for details.
type SandboxStatusRequest struct {
	SandboxId string `protobuf:"bytes,1"`
	Verbose   bool   `protobuf:"varint,2"`
}

// SandboxStatusResponse describes a pod.
type SandboxStatusResponse struct {
	SandboxId string                 `protobuf:"bytes,1"`
	Pid       uint32                 `protobuf:"varint,2"`
	State     string                 `protobuf:"bytes,3"`
	Info      map[string]string      `protobuf:"bytes,4"`
	CreatedAt *timestamppb.Timestamp `protobuf:"bytes,5"`
	ExitedAt  *timestamppb.Timestamp `protobuf:"bytes,6"`
}

// PingRequest names a pod.
type PingRequest struct {
	SandboxId string `protobuf:"bytes,1"`
}

// PingResponse says that the pod exists.
type PingResponse struct{}

// ShutdownSandboxRequest names a pod.
type ShutdownSandboxRequest struct {
	SandboxId string `protobuf:"bytes,1"`
}

// ShutdownSandboxResponse says that the pod was removed.
type ShutdownSandboxResponse struct{}

// SandboxMetricsRequest names a pod.
type SandboxMetricsRequest struct {
	SandboxId string `protobuf:"bytes,1"`
}

// SandboxMetricsResponse has the statistics of a whole pod.
type SandboxMetricsResponse struct {
	Metrics *types.Metric `protobuf:"bytes,1"`
}
