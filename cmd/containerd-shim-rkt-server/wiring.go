package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/config/annotation"
	"github.com/rkt/containerd-shim-rkt-v1/manager"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/shim"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/rktabi"
)

func dataDir() string { return cmp.Or(os.Getenv(config.DataDirVariable), config.DataDir) }

// readConfig reads the node's configuration. Its error tells clients that the operator of
// the node has to correct the configuration.
func readConfig() (*config.Config, error) {
	c, err := config.Open(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("this node's operator has to correct the configuration of the runtime (rktctl config check shows what is wrong): %w", err)
	}
	return c, nil
}

// wantedTrees returns the digests that the configuration pins. Their trees are not
// collected, even if no pod uses them.
func wantedTrees() ([]string, error) {
	c, err := readConfig()
	if err != nil {
		return nil, err
	}
	return c.Digests(), nil
}

// serve makes the Task service of one pod.
func serve(ctx context.Context, b manager.Bootstrap, s *stores) (*manager.Service, error) {
	s.pods.Children = s.children
	s.images.Wanted = wantedTrees
	chosen := config.NewPod(b.Stage1, b.Asked, readConfig)
	open := prepare(ctx, s, chosen)
	service, err := shim.New(shim.ServiceConfig{
		Namespace:     b.Namespace,
		EventsAddress: b.TTRPCAddress,
		Children:      s.children,
		Debug:         b.LogLevel == "debug" || b.LogLevel == "trace",
		Stage1:        chosen,
		DropsEnded:    b.DropsEnded(),
		Failed: func(f disk.FailedStart) {
			f.Daemon = b.Address
			if f.Stage1 == nil {
				f.Stage1 = recordOf(chosen.Choice())
			}
			keepFailure(ctx, f)
		},
		NewPod: func(events pod.Events) shim.Pod {
			return pod.New(pod.PodConfig{
				Store:      s.pods,
				Key:        disk.Key{Daemon: b.Address, Namespace: b.Namespace, Sandbox: b.Group},
				Cgroups:    b.Cgroups,
				Children:   s.children,
				Events:     events,
				OpenStage1: open,
				Admit:      chosen.Admit,
				Choice:     func() disk.Stage1Record { return *recordOf(chosen.Choice()) },
			})
		},
	})
	if err != nil {
		return nil, err
	}
	collect := func() { s.collectStale(ctx) }
	// Collect the pods of other boots and of killed shims while this shim works, and again
	// at its end, because a node may not get another pod for a long time.
	var stale sync.WaitGroup
	stale.Go(collect)
	done := make(chan struct{})
	go func() {
		<-service.Done()
		stale.Wait()
		collect()
		close(done)
	}()
	return &manager.Service{
		Register: service.Register,
		Ending:   service.Ending(),
		Done:     done,
		Close: func(ctx context.Context) error {
			err := service.Close(ctx)
			stale.Wait()
			return err
		},
	}, nil
}

// prepare opens the stage1 while containerd is still connecting. The returned function
// returns that stage1. If it could not be opened, or if a sandbox has meanwhile chosen
// another one, the returned function opens the chosen stage1 itself.
func prepare(ctx context.Context, stores *stores, chosen *config.Pod) func(context.Context) (pod.Stage1, error) {
	first := chosen.Choice()
	opened := make(chan pod.Stage1, 1)
	go func() {
		defer close(opened)
		// When Go looks up or starts its first process, it forks once more to check whether
		// the kernel has pidfds. Let that happen now.
		if self, err := os.FindProcess(os.Getpid()); err == nil {
			_ = self.Release()
		}
		if s, err := stores.open(ctx, first); err == nil {
			opened <- s
		}
	}()
	return func(ctx context.Context) (pod.Stage1, error) {
		choice := chosen.Choice()
		if s, ok := <-opened; ok && choice.Equal(first) {
			return s, nil
		}
		return stores.open(ctx, choice)
	}
}

// open opens a chosen stage1.
func (s *stores) open(ctx context.Context, c config.Choice) (pod.Stage1, error) {
	i, err := imageOf(ctx, s.images, c)
	if err != nil {
		return nil, fmt.Errorf("stage1 %s: %w", c.Name, err)
	}
	i, calls, err := stage1.Probe(ctx, s.images, i, c.Name, s.children)
	if err != nil && !errdefs.IsNotImplemented(err) {
		pod.Log(ctx, "", "", err).Warn("the stage1 is used with the features of its document")
	}
	return openImage(i, c.Name, s.children, stage1.Rules{Excused: c.Accept, RefuseUnknown: c.RefuseUnknown, Probe: calls})
}

// openImage returns the stage1 of an image. The arguments are those of stage1.For.
func openImage(i *image.Image, name string, children *proc.Children, rules stage1.Rules) (pod.Stage1, error) {
	return stage1.For(i, name, children, rules, immutable.Open, rktabi.Open)
}

// imageOf returns the image of a chosen stage1. A choice with a digest and no path means an
// image that was imported or used before or, if there is none, the image that came with the
// shim.
func imageOf(ctx context.Context, images *image.Store, c config.Choice) (*image.Image, error) {
	// The shim verifies no signatures. rktctl verified them when it imported the image.
	images = images.With(image.ACIs{Directories: c.ACIs.Dependencies, Signed: c.ACIs.Keyring != ""})
	if c.Path == "" && c.Digest != "" {
		if i, err := images.Rendered(c.Digest); err == nil || !errdefs.IsNotFound(err) {
			return i, err
		}
	}
	dir, err := locate(c)
	if err != nil {
		return nil, err
	}
	return images.Image(ctx, dir, c.Digest)
}

// locate returns the path of the image of a chosen stage1.
func locate(c config.Choice) (string, error) {
	if c.Path != "" {
		return c.Path, nil
	}
	return image.Locate(c.Name)
}

// takesLayers reports whether the image of a chosen stage1 is a directory that says so. It looks at nothing else, because each
// `start` of a new pod waits for it.
func takesLayers(c config.Choice) bool {
	dir, err := locate(c)
	return err == nil && image.OwnsLayers(dir)
}

// describe returns the features of a stage1. For an image that is a directory it needs
// neither root nor the tree store, except that features/probe is executed by root only. A
// packed or pinned image is looked up in the store.
func describe(ctx context.Context, c config.Choice) (manager.Description, error) {
	features, err := featuresOf(ctx, c)
	return manager.Description{Features: features, Annotations: map[string]string{annotation.Stage1: c.Name}}, err
}

func featuresOf(ctx context.Context, c config.Choice) ([]byte, error) {
	if c.Digest == "" {
		path, err := locate(c)
		if err != nil {
			return nil, err
		}
		if image.IsTree(path) && (os.Geteuid() != 0 || !image.Probes(path)) {
			return image.Features(path)
		}
	}
	images, err := image.OpenStore(dataDir())
	if err != nil {
		return nil, err
	}
	i, err := imageOf(ctx, images, c)
	if err != nil {
		return nil, err
	}
	children := proc.NewChildren()
	i, _, err = stage1.Probe(ctx, images, i, c.Name, children)
	if err != nil && !errdefs.IsNotImplemented(err) {
		pod.Log(ctx, "", "", err).Warn("these are the features of the stage1's document")
	}
	return i.OCIFeatures(), children.Close(ctx)
}
