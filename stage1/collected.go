package stage1

import (
	"context"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// OpenCollected returns the function by which a collector opens the stage1 of a pod: the one
// with which the pod was started. children and doors are those of For.
func OpenCollected(images *image.Store, children *proc.Children, doors ...Door) func(podDir string) (disk.Stage1, error) {
	return func(podDir string) (disk.Stage1, error) {
		i, err := images.Load(podDir)
		if err != nil {
			return nil, err
		}
		s, err := For(i, i.Name(), children, Rules{}, doors...)
		if err != nil {
			return nil, err
		}
		return Collected(s), nil
	}
}

// Collected returns a pod's stage1 for the collector.
func Collected(s pod.Stage1) disk.Stage1 { return collected{s} }

type collected struct{ pod.Stage1 }

func (s collected) Call(ctx context.Context, podDir string, leader int, r abi.Request) error {
	return s.Invoke(ctx, pod.Call{Dir: podDir, Leader: leader, Request: r})
}
