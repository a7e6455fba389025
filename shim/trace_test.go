package shim

import (
	"context"
	"strings"
	"testing"

	"github.com/containerd/ttrpc"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

const traceparent abi.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestATraceContextInTheMetadataOfACallReachesThePod(t *testing.T) {
	var got abi.Traceparent
	method := rpc("Test", func(ctx context.Context, _ *struct{}) (*struct{}, error) {
		got = pod.Trace(ctx)
		return &struct{}{}, nil
	})
	for name, c := range map[string]struct {
		md   ttrpc.MD
		want abi.Traceparent
	}{
		"none":              {nil, ""},
		"other metadata":    {ttrpc.MD{"containerd-namespace-ttrpc": {"x"}}, ""},
		"one":               {ttrpc.MD{"traceparent": {string(traceparent)}, "tracestate": {"a=b"}, "baggage": {"c=d"}}, traceparent},
		"two":               {ttrpc.MD{"traceparent": {string(traceparent), string(traceparent)}}, ""},
		"empty":             {ttrpc.MD{"traceparent": {}}, ""},
		"not valid":         {ttrpc.MD{"traceparent": {"00-" + strings.Repeat("0", 32) + string(traceparent[35:])}}, ""},
		"without an end":    {ttrpc.MD{"traceparent": {strings.Repeat("a", 1<<20)}}, ""},
		"of a later format": {ttrpc.MD{"traceparent": {"01" + string(traceparent[2:])}}, ""},
	} {
		ctx := t.Context()
		if c.md != nil {
			ctx = ttrpc.WithMetadata(ctx, c.md)
		}
		if _, err := method(ctx, func(any) error { return nil }); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestACallWithoutATraceContextAllocatesNothingForIt(t *testing.T) {
	plain := t.Context()
	other := ttrpc.WithMetadata(plain, ttrpc.MD{"containerd-namespace-ttrpc": {"x"}})
	for _, ctx := range []context.Context{plain, other} {
		if n := testing.AllocsPerRun(100, func() {
			if traced(ctx) != ctx || pod.Trace(ctx) != "" {
				t.Error("a trace")
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}
