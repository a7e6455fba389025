package stage1

import (
	"context"
	"math/rand/v2"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// Trace makes the call part of the trace of ctx, if ctx has one. The call gets a span of its own,
// below the client's. Trace is called before the call is made.
func (k *Call) Trace(ctx context.Context) {
	k.parent, k.Request.Traceparent = "", ""
	if t := pod.Trace(ctx); t != "" {
		k.parent, k.Request.Traceparent = t.Span(), t.With(rand.Uint64()|1) // a span is not 0
	}
}
