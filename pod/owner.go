package pod

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// owner decides when the pod ends. At first the apps own the pod. CreateSandbox makes it
// a sandbox's. Close and ShutdownSandbox end both kinds.
type owner interface {
	// admit returns an error if a container or sandbox cannot come now. The error calls
	// it name.
	admit(name string) error
	// outlivesApps returns nil if the pod ends with its last app. Otherwise it returns
	// the error with which Close refuses to end the pod.
	outlivesApps() error
	// beforeRun completes the call of `run`, and makes the things that the call needs.
	beforeRun(ctx context.Context, c *Call, undo *cleanup) error
	// afterRun takes over the process that `run` has reported.
	afterRun(ctx context.Context, leader abi.Ready) error
	// stage1Ended is called when the stage1 has ended, before its apps are killed.
	stage1Ended(ctx context.Context)
	// remove calls removePod, and removes the owner's own files before and after that.
	remove(ctx context.Context, removePod func() error) error
}

var (
	_ owner = byApps{}
	_ owner = shutDown{}
)

// byApps owns a pod that ends with its last app.
type byApps struct{}

func (byApps) admit(string) error                                     { return nil }
func (byApps) outlivesApps() error                                    { return nil }
func (byApps) beforeRun(context.Context, *Call, *cleanup) error       { return nil }
func (byApps) afterRun(context.Context, abi.Ready) error              { return nil }
func (byApps) stage1Ended(context.Context)                            {}
func (byApps) remove(_ context.Context, removePod func() error) error { return removePod() }

// shutDown owns a pod that has ended for good.
type shutDown struct{ byApps }

func (shutDown) admit(name string) error {
	return fmt.Errorf("%s: its pod has been shut down: %w", name, errdefs.ErrFailedPrecondition)
}
