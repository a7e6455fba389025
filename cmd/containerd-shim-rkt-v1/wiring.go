package main

import (
	"context"
	"os"
	"sync"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/manager"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
	"github.com/rkt/containerd-shim-rkt-v1/shim"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// defaultDataDir is where pods and stage1 trees are kept unless RKT_DATA_DIR of
// containerd's environment says otherwise.
const defaultDataDir = "/var/lib/rkt"

// stage1Annotation is what `-info` tells the name of the stage1 by.
const stage1Annotation = "io.containerd.rkt.v1/stage1"

func dataDir() string {
	if dir := os.Getenv("RKT_DATA_DIR"); dir != "" {
		return dir
	}
	return defaultDataDir
}

// serve makes the Task service of one pod.
func serve(ctx context.Context, b manager.Bootstrap) (*manager.Service, error) {
	store, err := pod.OpenStore(dataDir())
	if err != nil {
		return nil, err
	}
	images, err := stage1.OpenStore(dataDir())
	if err != nil {
		return nil, err
	}
	children := proc.NewChildren()
	store.Children = children
	first := prepare(ctx, images, children, b.Stage1)
	service, err := shim.New(shim.Config{
		Namespace:     b.Namespace,
		EventsAddress: b.TTRPCAddress,
		Children:      children,
		Debug:         b.LogLevel == "debug" || b.LogLevel == "trace",
		Stage1:        b.Stage1,
		DropsEnded:    b.DropsEnded(),
		NewPod: func(events pod.Events) shim.Pod {
			return pod.New(pod.Config{
				Store:      store,
				Key:        pod.Key{Daemon: b.Address, Namespace: b.Namespace, Sandbox: b.Group},
				Children:   children,
				Events:     events,
				OpenStage1: first,
			})
		},
	})
	if err != nil {
		return nil, err
	}
	// What other boots and dead shims have left is collected beside the work.
	var stale sync.WaitGroup
	stale.Go(func() {
		c := pod.Collector{Store: store, OpenStage1: reopener(images, children)}
		if err := c.CollectStale(ctx); err != nil {
			log.G(ctx).WithError(err).Warn("pods that others have left cannot all be collected")
		}
	})
	return &manager.Service{
		Register: service.Register,
		Ending:   service.Ending(),
		Done:     service.Done(),
		Close: func(ctx context.Context) error {
			err := service.Close(ctx)
			stale.Wait()
			return err
		},
	}, nil
}

// prepare opens the stage1 while containerd is still connecting, and returns what
// the pod calls to have it. An image that could not be opened is tried again.
func prepare(ctx context.Context, images *stage1.Store, children *proc.Children, name string) func(context.Context) (pod.Stage1, error) {
	opened := make(chan pod.Stage1, 1)
	go func() {
		defer close(opened)
		// The first process that Go looks up or starts costs a fork, to find out
		// whether the kernel has pidfds.
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Release()
		}
		if s, err := openStage1(ctx, images, children, name); err == nil {
			opened <- s
		}
	}()
	return func(ctx context.Context) (pod.Stage1, error) {
		if s, ok := <-opened; ok {
			return s, nil
		}
		return openStage1(ctx, images, children, name)
	}
}

// openStage1 returns the image that a runtime's name pins.
func openStage1(ctx context.Context, images *stage1.Store, children *proc.Children, name string) (pod.Stage1, error) {
	dir, err := stage1.Locate(name)
	if err != nil {
		return nil, err
	}
	image, err := images.Image(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	return stage1.New(image, name, children), nil
}

// reopener returns the stage1 of a pod that is there already.
func reopener(images *stage1.Store, children *proc.Children) func(string) (pod.Stage1, error) {
	return func(podDir string) (pod.Stage1, error) {
		image, err := images.Load(podDir)
		if err != nil {
			return nil, err
		}
		return stage1.New(image, image.Name(), children), nil
	}
}

// collector does the work of `delete`.
type collector struct{}

// Collect opens the stores when it is called: `-v` and `-info` have none.
func (collector) Collect(ctx context.Context, bundle, namespace, id string) (manager.Exit, error) {
	store, err := pod.OpenStore(dataDir())
	if err != nil {
		return manager.Exit{}, err
	}
	images, err := stage1.OpenStore(dataDir())
	if err != nil {
		return manager.Exit{}, err
	}
	c := pod.Collector{Store: store, OpenStage1: reopener(images, proc.NewChildren())}
	exit, err := c.Collect(ctx, bundle, namespace, id)
	return manager.Exit{PID: uint32(exit.PID), Status: exit.Code, At: exit.At}, err
}

// describe reads what a stage1 says of itself, from the image beside the shim: it
// needs neither root nor the store.
func describe(_ context.Context, name string) (manager.Description, error) {
	dir, err := stage1.Locate(name)
	if err != nil {
		return manager.Description{}, err
	}
	features, err := stage1.Features(dir)
	return manager.Description{Features: features, Annotations: map[string]string{stage1Annotation: name}}, err
}
