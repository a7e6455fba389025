// Command nullshim is a shim that isolates nothing and executes nothing: the part of this
// project's shim that containerd sees, with the same start, delete, server, calls and events,
// above a pod in memory. make bench measures it as the floor that no stage1 can go below.
package main

import (
	"context"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/shim"
)

func main() {
	proc.SealDescriptors()
	p := &manager.Program{
		Version:   "null",
		Serve:     serve,
		Config:    func() (*config.Config, error) { return config.Open(os.Getenv) },
		Cgroups:   func() (map[string]string, error) { return map[string]string{}, nil },
		DataDir:   func() error { return nil },
		Collector: collector{},
	}
	os.Exit(p.Main(os.Args))
}

func serve(_ context.Context, b manager.Bootstrap) (*manager.Service, error) {
	service, err := shim.New(shim.ServiceConfig{
		Namespace:     b.Namespace,
		EventsAddress: b.TTRPCAddress,
		Children:      proc.NewChildren(),
		Stage1:        config.NewPod(b.Stage1, b.Asked, nil),
		NewPod:        func(events pod.Events) shim.Pod { return newNullPod(events) },
	})
	if err != nil {
		return nil, err
	}
	return &manager.Service{
		Register: service.Register,
		Ending:   service.Ending(),
		Done:     service.Done(),
		Close:    service.Close,
	}, nil
}

// collector finds nothing, because nothing is on disk.
type collector struct{}

func (collector) Collect(context.Context, string, string, string) (manager.Exit, error) {
	return manager.Exit{}, nil
}

func (collector) HasHooks(string) bool { return false }

func (collector) Finish(context.Context, string, bool) error { return nil }
