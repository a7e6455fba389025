// Command containerd-shim-rkt-server is the server program of containerd-shim-rkt-v1, a containerd
// runtime that isolates pods by exchangeable stage1 images. It serves pods, and makes all calls that the
// front does not answer. It only connects the packages.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/manager"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// version and revision are set at link time, by -ldflags "-X main.version=…".
var (
	version  string
	revision string
)

func main() {
	if launch.Asked(os.Args) {
		os.Exit(launch.Main())
	}
	proc.SealDescriptors()
	hooks := &disk.Hooks{}
	code := program(hooks).Main(os.Args)
	// Hooks that are slow go on after the answer to the call that began them. Nothing else is left to do.
	signal.Reset(syscall.SIGTERM, syscall.SIGINT)
	_ = os.Stdout.Close()
	_ = os.Stderr.Close()
	hooks.Wait()
	os.Exit(code)
}

func program(hooks *disk.Hooks) *manager.Program {
	open := sync.OnceValues(func() (*stores, error) { return openStores(hooks) }) // -v and -info need none
	p := &manager.Program{
		Version:  version,
		Revision: revision,
		Serve: func(ctx context.Context, b manager.Bootstrap) (*manager.Service, error) {
			s, err := open()
			if err != nil {
				return nil, err
			}
			return serve(ctx, b, s)
		},
		Config:    readConfig,
		Cgroups:   cgroup.Own,
		DataDir:   func() error { _, err := open(); return err },
		Layers:    takesLayers,
		Collector: collector{open},
		Describe:  describe,
		Failed:    startFailed,
	}
	if p.Version == "" || p.Revision == "" {
		fillFromBuild(p)
	}
	return p
}

// fillFromBuild sets version and revision from the go command's records, for builds
// without ldflags.
func fillFromBuild(p *manager.Program) {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	if p.Version == "" {
		p.Version = build.Main.Version
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" && p.Revision == "" {
			p.Revision = s.Value
		}
	}
}
