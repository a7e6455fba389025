package pod

import (
	"context"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// traceKey is the key of a context's trace.
type traceKey struct{}

// WithTrace returns a context of a client's call that has a trace context. The stage1 calls that
// are made for the client's call become part of the trace.
func WithTrace(ctx context.Context, t abi.Traceparent) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// Trace returns the trace context of ctx, or "".
func Trace(ctx context.Context) abi.Traceparent {
	t, _ := ctx.Value(traceKey{}).(abi.Traceparent)
	return t
}

// lasting returns a context for work that goes on after the client's call of ctx. It does not end
// with that call, and the work is not part of the call's trace.
func lasting(ctx context.Context) context.Context {
	ctx = context.WithoutCancel(ctx)
	if Trace(ctx) == "" {
		return ctx
	}
	return WithTrace(ctx, "")
}
