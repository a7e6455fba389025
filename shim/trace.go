package shim

import (
	"context"

	"github.com/containerd/ttrpc"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// traced returns the context of a call with the trace context that the client has sent in the
// call's metadata, as containerd 2.4 does if its tracing is on. If there is none, or more
// than one, or it is not valid, traced returns ctx.
func traced(ctx context.Context) context.Context {
	md, ok := ttrpc.GetMetadata(ctx)
	if !ok {
		return ctx
	}
	values, _ := md.Get("traceparent")
	if len(values) != 1 {
		return ctx
	}
	t, ok := abi.ParseTraceparent(values[0])
	if !ok {
		return ctx
	}
	return pod.WithTrace(ctx, t)
}
