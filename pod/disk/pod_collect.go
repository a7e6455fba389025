package disk

import (
	"context"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Limits of a collection. containerd kills `delete` after 5 seconds.
const (
	// entrypointLimit is the time for all entrypoints together. After it the collector
	// does their work by force.
	entrypointLimit = 1500 * time.Millisecond
	// removalPatience is how long Collect waits for a running shim that removes the
	// pod. The shim may need longer if the machine is busy or the stage1 is slow: the
	// ABI gives its entrypoints ten seconds each.
	removalPatience = 2 * time.Second
	// exitLimit is how long to wait for the end of a shim that no longer has its
	// locks: a process stays visible for some time after it has begun to exit.
	exitLimit = time.Second
)

// Stage1 is the part of a stage1 that a Collector needs. All methods except Call are
// also methods of pod.Stage1.
type Stage1 interface {
	Has(abi.Entrypoint) bool
	Attach(podDir string) error
	Detach(podDir string) error
	// Call executes stop, app/stop, app/rm or gc for the pod in podDir. leader is the
	// pid that `run` has reported, or 0.
	Call(ctx context.Context, podDir string, leader int, r abi.Request) error
}

// podCollector collects a pod, or some of its apps.
type podCollector struct {
	dir   *Dir
	open  func(string) (Stage1, error)
	limit context.Context // for all entrypoints together
	// patience ends when the collector stops waiting for a running shim that removes
	// the pod.
	patience context.Context

	stage1 Stage1 // opened at its first use
}

// entrypoint executes an entrypoint if the stage1 has it. The collector repeats the
// work of the entrypoint itself, so errors are ignored. For the same reason it is no
// error if the stage1 cannot be opened.
func (p *podCollector) entrypoint(e abi.Entrypoint, a *AppDir) {
	if p.stage1 == nil {
		s, err := p.open(p.dir.Path())
		if err != nil {
			return
		}
		p.stage1 = s
	}
	if !p.stage1.Has(e) || p.limit.Err() != nil {
		return
	}
	leader := 0
	if sup := p.dir.shim.Supervisor; sup != nil {
		leader = sup.Leader
	}
	r := abi.Request{Entrypoint: e, Pod: p.dir.uuid}
	if a != nil {
		r.App, r.Container, r.Bundle = string(a.name), a.record.ID, a.bundle()
	}
	_ = p.stage1.Call(p.limit, p.dir.Path(), leader, r)
}

// supervised reports whether the pod's supervisor is running.
func (p *podCollector) supervised() bool {
	sup := p.dir.shim.Supervisor
	return sup != nil && proc.Alive(sup.PID, sup.StartTime)
}
