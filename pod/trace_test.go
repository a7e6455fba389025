package pod

import (
	"context"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

func TestWorkThatOutlastsACallIsNotInItsTrace(t *testing.T) {
	const trace abi.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	call, cancel := context.WithCancel(WithTrace(t.Context(), trace))
	if Trace(call) != trace || Trace(context.WithoutCancel(call)) != trace {
		t.Error("the call has no trace")
	}
	after := lasting(call)
	cancel()
	if Trace(after) != "" || after.Err() != nil || Trace(lasting(t.Context())) != "" {
		t.Errorf("%q, %v", Trace(after), after.Err())
	}
}
