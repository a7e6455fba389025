package main

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager"
	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/shim"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/rktabi"
)

// stores has the pods and the images of the data directory, and the children of this
// process.
type stores struct {
	pods     *disk.Store
	images   *image.Store
	children *proc.Children
}

func openStores(hooks *disk.Hooks) (*stores, error) {
	if err := datadir.Check(dataDir()); err != nil {
		return nil, fmt.Errorf("data directory (%s sets it): %w", config.DataDirVariable, err)
	}
	pods, err := disk.OpenStore(dataDir())
	if err != nil {
		return nil, err
	}
	pods.Hooks = hooks
	images, err := image.OpenStore(dataDir())
	if err != nil {
		return nil, err
	}
	return &stores{pods, images, proc.NewChildren()}, nil
}

// collector returns a collector of pods. It opens the stage1 of a pod from the pod's
// directory.
func (s *stores) collector() *disk.Collector {
	return &disk.Collector{Store: s.pods, OpenStage1: stage1.OpenCollected(s.images, s.children, immutable.Open, rktabi.Open)}
}

// collectStale collects the pods that other shims have left.
func (s *stores) collectStale(ctx context.Context) {
	if err := s.collector().CollectStale(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("pods that others have left cannot all be collected")
	}
}

// collector does the work of `delete`.
type collector struct{ open func() (*stores, error) }

func (c collector) HasHooks(bundle string) bool {
	s, err := c.open()
	return err == nil && s.collector().HasHooks(bundle)
}

func (c collector) Collect(ctx context.Context, bundle, namespace, id string) (manager.Exit, error) {
	s, err := c.open()
	if err != nil {
		return manager.Exit{}, err
	}
	began := time.Now()
	exit, err := s.collector().Collect(ctx, bundle, namespace, id)
	if err == nil { // no process writes to the loggers any more
		err = shim.EndLoggers(ctx, bundle, time.Since(began))
	}
	return manager.Exit{PID: uint32(exit.PID), Status: exit.Code, At: exit.At, Rest: exit.Rest, Left: exit.Left}, err
}

func (c collector) Finish(ctx context.Context, rest string, hangs bool) error {
	s, err := c.open()
	if err != nil {
		return err
	}
	return s.collector().Finish(ctx, rest, hangs)
}
