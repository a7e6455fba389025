package pod

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Stats are the kernel's statistics of an app.
type Stats struct {
	*cgroup.Stats
	// Network has the interfaces of the app's network namespace. It is empty
	// after the app has ended, and if the namespace is the host's.
	Network []proc.Interface
}

// Stats reads the statistics of an app, until the app is deleted
// (requirements.md#T14, requirements.md#C4): after the end of an app, clients
// ask whether the kernel has killed a process of it. Stats starts no process,
// unless the stage1 counts the statistics and its image has no socket.
func (p *Pod) Stats(ctx context.Context, id AppID) (Stats, error) {
	a, err := p.app(id)
	if err != nil {
		return Stats{}, err
	}
	if a.owns(abi.OwnResources) {
		return a.statsInside(ctx)
	}
	counted, err := a.cgroup.Stats()
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%v: %w", err, errdefs.ErrNotFound) // the app is being deleted
	}
	if err != nil {
		return Stats{}, fmt.Errorf("container %s: %w", a.id, err)
	}
	st := Stats{Stats: counted}
	if pid, start, err := a.alive(); err == nil && a.ownNet && proc.Alive(pid, start) {
		st.Network, _ = proc.Interfaces(pid) // the process may end at any time
	}
	return st, nil
}

// statsInside is Stats of an app whose resources are the stage1's. They have the form that
// clients expect on this host.
func (a *app) statsInside(ctx context.Context) (Stats, error) {
	s, err := a.inside(ctx)
	if err != nil {
		return Stats{}, err
	}
	st := Stats{Stats: counted(s, a.cgroup.Record().Version)}
	for _, n := range s.Network {
		st.Network = append(st.Network, proc.Interface{Name: n.Name, Receive: proc.Traffic(n.Receive), Transmit: proc.Traffic(n.Transmit)})
	}
	return st, nil
}
