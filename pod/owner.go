package pod

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// owner is what a pod is there for, and so decides when it ends. A pod begins as its
// apps'. CreateSandbox makes it a sandbox's. Close and ShutdownSandbox end both.
type owner interface {
	// admit returns why a container or sandbox, which an error names so, cannot come now.
	admit(name string) error
	// outlivesApps returns nil if the pod ends with its last app, and else why Close
	// must not end it.
	outlivesApps() error
	// beforeRun completes the call of `run`, and makes what that needs.
	beforeRun(ctx context.Context, c *Call, undo *cleanup) error
	// afterRun takes over what `run` has reported.
	afterRun(ctx context.Context, leader abi.Ready) error
	// stage1Ended is called when the stage1 has ended, before its apps are killed.
	stage1Ended(ctx context.Context)
	// remove calls removePod, and removes what the owner has made before and after that.
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
