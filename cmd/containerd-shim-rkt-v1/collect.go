package main

import (
	"context"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/manager"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/shim"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// reopener returns a function that opens the stage1 of an existing pod.
func reopener(images *image.Store, children *proc.Children) func(string) (disk.Stage1, error) {
	return func(podDir string) (disk.Stage1, error) {
		i, err := images.Load(podDir)
		if err != nil {
			return nil, err
		}
		s, err := openImage(i, i.Name(), children, nil)
		if err != nil {
			return nil, err
		}
		return stage1.Collected(s), nil
	}
}

// staleCollection returns a function that collects what other shims have left.
func staleCollection(ctx context.Context, store *disk.Store, images *image.Store, children *proc.Children) func() {
	collector := disk.Collector{Store: store, OpenStage1: reopener(images, children)}
	return func() {
		if err := collector.CollectStale(ctx); err != nil {
			log.G(ctx).WithError(err).Warn("pods that others have left cannot all be collected")
		}
	}
}

// collector does the work of `delete`.
type collector struct{}

// open opens the stores. Only `delete` calls it, because `-v` and `-info` need none.
func (collector) open() (*disk.Collector, error) {
	store, err := disk.OpenStore(dataDir())
	if err != nil {
		return nil, err
	}
	images, err := image.OpenStore(dataDir())
	if err != nil {
		return nil, err
	}
	return &disk.Collector{Store: store, OpenStage1: reopener(images, proc.NewChildren())}, nil
}

func (c collector) Collect(ctx context.Context, bundle, namespace, id string) (manager.Exit, error) {
	p, err := c.open()
	if err != nil {
		return manager.Exit{}, err
	}
	began := time.Now()
	exit, err := p.Collect(ctx, bundle, namespace, id)
	if err == nil { // no process is left that writes to the loggers
		err = shim.EndLoggers(ctx, bundle, time.Since(began))
	}
	return manager.Exit{PID: uint32(exit.PID), Status: exit.Code, At: exit.At, Rest: exit.Rest}, err
}

func (c collector) Finish(ctx context.Context, rest string) error {
	p, err := c.open()
	if err != nil {
		return err
	}
	return p.Finish(ctx, rest)
}
