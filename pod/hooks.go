package pod

import (
	"context"
	"fmt"
	"time"
)

// hooksAwaited is how long Delete, and the undo of Create, wait for poststop hooks. A hook may wait for a network. It
// goes on after the answer, and the server does not exit before its end.
const hooksAwaited = 10 * time.Second

// poststop runs the poststop hooks of the app, in the background if they are slow.
func (a *app) poststop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), hooksAwaited, fmt.Errorf("they have not ended within %s", hooksAwaited))
	defer cancel()
	return a.disk.Poststop(ctx)
}
