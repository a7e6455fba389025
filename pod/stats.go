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

// Stats is what the kernel has counted of an app.
type Stats struct {
	*cgroup.Stats
	// Network is that of the app's network namespace, while the app lives and
	// unless the namespace is the host's.
	Network []proc.Interface
}

// Stats reads the statistics of an app, from its creation until it is deleted:
// clients ask whether the kernel has killed in it when it has ended
// (requirements.md#T14, requirements.md#C4). It starts no process, unless the statistics are the
// stage1's and its image has no socket.
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
		err = fmt.Errorf("%v: %w", err, errdefs.ErrNotFound) // its Delete is under way
	}
	if err != nil {
		return Stats{}, fmt.Errorf("container %s: %w", a.id, err)
	}
	st := Stats{Stats: counted}
	if pid, start, err := a.alive(); err == nil && a.ownNet && proc.Alive(pid, start) {
		st.Network, _ = proc.Interfaces(pid) // it may end at any time
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
