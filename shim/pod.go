package shim

import (
	"context"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// Pod is the part of a pod that the service uses. *pod.Pod implements it.
//
// For an unknown app or exec a method returns errdefs.ErrNotFound; in a state in which
// the call is not legal, errdefs.ErrFailedPrecondition. The service holds no lock when it
// calls a method, and may call all of them concurrently.
type Pod interface {
	// CreateApp makes an app whose process is blocked before its exec. For an id that is
	// in use it returns errdefs.ErrAlreadyExists.
	CreateApp(context.Context, pod.AppConfig) (pod.Status, error)
	// AddExec registers a further process of a created or running app.
	AddExec(context.Context, pod.AppID, pod.ExecConfig) error
	// Start runs a created app, or with an ExecID an exec, and returns its pid.
	Start(context.Context, pod.AppID, pod.ExecID) (int, error)
	// Status never blocks. It is legal in every state.
	Status(pod.AppID, pod.ExecID) (pod.Status, error)
	// Wait waits until the process has ended and returns its exit. It is legal until the
	// process is deleted.
	Wait(context.Context, pod.AppID, pod.ExecID) (pod.Exit, error)
	// Kill signals a process, or all processes of an app. It returns errdefs.ErrNotFound
	// for a process that has ended, and ErrFailedPrecondition for an exec that was not
	// started.
	Kill(ctx context.Context, id pod.AppID, exec pod.ExecID, sig int, all bool) error
	// Pause stops every process of a running app. Resume lets the processes of a paused
	// app continue.
	Pause(context.Context, pod.AppID) error
	Resume(context.Context, pod.AppID) error
	// Update changes those limits of an app that an OCI linux.resources object names. It
	// is legal until the app has ended.
	Update(ctx context.Context, id pod.AppID, resources []byte) error
	// Stats returns the kernel's counters. It is legal until the app is deleted.
	Stats(context.Context, pod.AppID) (pod.Stats, error)
	// Checkpoint writes the state of a running or paused app to a directory. It returns
	// errdefs.ErrNotImplemented if the stage1 cannot do that.
	Checkpoint(context.Context, pod.AppID, abi.Checkpoint) error
	// Delete removes an app or exec that is created or stopped.
	Delete(context.Context, pod.AppID, pod.ExecID) (pod.Status, error)
	// Pids lists the processes of an app that has not ended.
	Pids(context.Context, pod.AppID) ([]pod.ProcessInfo, error)
	// Resize is legal in every state, and a no-op without a terminal.
	Resize(pod.AppID, pod.ExecID, pod.Size) error
	// CloseStdin is legal in every state.
	CloseStdin(pod.AppID, pod.ExecID) error
	// Empty reports whether the pod has no app, apart from the one whose id is but.
	Empty(but pod.AppID) bool
	// Ended reports whether all apps that the pod has have ended. A pod without apps has ended.
	Ended() bool
	// Close ends a pod that has no apps.
	Close(context.Context) error
	// AddDebug makes a debug app for a running target, without a process. The caller
	// calls its method End. It returns errdefs.ErrNotImplemented if the stage1 cannot
	// have such apps.
	AddDebug(target pod.AppID) (pod.Debug, error)
	SandboxPod
}

// SandboxPod is the part of a pod that the Sandbox service uses. For a sandbox of another
// id a method returns errdefs.ErrNotFound.
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
	// SandboxStats returns the kernel's counters of a started pod.
	SandboxStats(id string) (pod.Stats, error)
	// LinkSandbox makes links in containerd's directories to the files of a started
	// sandbox.
	LinkSandbox(id string) error
}

var _ Pod = (*pod.Pod)(nil)
