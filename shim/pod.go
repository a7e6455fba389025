package shim

import (
	"context"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// Pod is what the service needs of a pod. *pod.Pod implements it.
//
// An unknown app or exec is errdefs.ErrNotFound, a state in which the call is
// not legal errdefs.ErrFailedPrecondition. No method is called with a lock held,
// and all of them may be called concurrently.
type Pod interface {
	// CreateApp makes an app whose process is blocked before its exec. A taken
	// id is errdefs.ErrAlreadyExists.
	CreateApp(context.Context, pod.AppConfig) (pod.Status, error)
	// AddExec registers a further process of a created or running app.
	AddExec(context.Context, pod.AppID, pod.ExecConfig) error
	// Start runs a created app, or with an ExecID an exec, and returns its pid.
	Start(context.Context, pod.AppID, pod.ExecID) (int, error)
	// Status never blocks. It is legal in every state.
	Status(pod.AppID, pod.ExecID) (pod.Status, error)
	// Wait returns the exit once there is one, until the process is deleted.
	Wait(context.Context, pod.AppID, pod.ExecID) (pod.Exit, error)
	// Kill signals a process, or all of an app's. One that has ended is
	// errdefs.ErrNotFound, one that was not started ErrFailedPrecondition.
	Kill(ctx context.Context, id pod.AppID, exec pod.ExecID, sig int, all bool) error
	// Pause stops every process of a running app, Resume lets those of a paused
	// one go on.
	Pause(context.Context, pod.AppID) error
	Resume(context.Context, pod.AppID) error
	// Update changes the limits that an OCI linux.resources object names, of an
	// app that has not ended.
	Update(ctx context.Context, id pod.AppID, resources []byte) error
	// Stats returns what the kernel has counted, until the app is deleted.
	Stats(context.Context, pod.AppID) (pod.Stats, error)
	// Checkpoint keeps the state of a running or paused app. It is
	// errdefs.ErrNotImplemented if the stage1 cannot.
	Checkpoint(context.Context, pod.AppID, abi.Checkpoint) error
	// Delete removes an app or exec that is created or stopped.
	Delete(context.Context, pod.AppID, pod.ExecID) (pod.Status, error)
	// Pids lists the processes of an app that has not ended.
	Pids(context.Context, pod.AppID) ([]pod.ProcessInfo, error)
	// Resize is legal in every state, and a no-op without a terminal.
	Resize(pod.AppID, pod.ExecID, pod.Size) error
	// CloseStdin is legal in every state.
	CloseStdin(pod.AppID, pod.ExecID) error
	// Close ends a pod that has no apps.
	Close(context.Context) error
	SandboxPod
}

// SandboxPod is what the service needs of a pod that is asked for by itself. A
// sandbox of another id is errdefs.ErrNotFound.
type SandboxPod interface {
	// CreateSandbox makes the pod, without a process. It is legal once, before
	// any app.
	CreateSandbox(context.Context, pod.SandboxConfig) error
	// StartSandbox starts a sandbox that was created.
	StartSandbox(ctx context.Context, id string) (pod.SandboxStatus, error)
	// SandboxStatus never blocks. It is legal in every state.
	SandboxStatus(id string) (pod.SandboxStatus, error)
	// WaitSandbox returns once the sandbox has stopped.
	WaitSandbox(ctx context.Context, id string) (pod.Exit, error)
	// StopSandbox ends all processes of the pod. It is legal in every state.
	StopSandbox(ctx context.Context, id string, grace time.Duration) error
	// ShutdownSandbox stops the sandbox and removes the pod.
	ShutdownSandbox(ctx context.Context, id string) error
	// SandboxStats returns what the kernel has counted of a started pod.
	SandboxStats(id string) (pod.Stats, error)
	// LinkSandbox makes the links to the files of a started sandbox.
	LinkSandbox(id string) error
}

var _ Pod = (*pod.Pod)(nil)
