package stage1

import (
	"context"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

// Collected returns a pod's stage1 for the collector.
func Collected(s pod.Stage1) disk.Stage1 { return collected{s} }

type collected struct{ pod.Stage1 }

func (s collected) Call(ctx context.Context, podDir string, leader int, r abi.Request) error {
	return s.Invoke(ctx, pod.Call{Dir: podDir, Leader: leader, Request: r})
}
