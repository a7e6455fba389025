package pod

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// vacateLimit is how long the processes of a dead pod may take to end, if a new container
// uses their cgroup.
const vacateLimit = 10 * time.Second

// newCgroup makes the cgroup of a container or sandbox. If a client has chosen its path and
// a dead pod has left processes there, newCgroup kills these first. If anything else uses
// the cgroup, the error names it.
func (p *Pod) newCgroup(ctx context.Context, id, spec string, res *specs.LinuxResources) (*cgroup.Group, error) {
	path := cgroup.Path{Spec: spec, Namespace: p.cfg.Key.Namespace, ID: id, Daemon: p.cfg.Cgroups}
	create := func() (*cgroup.Group, error) {
		return cgroup.Maker{Children: p.cfg.Children}.Create(path, res)
	}
	g, err := create()
	if used := (*cgroup.InUseError)(nil); errors.As(err, &used) {
		limit, cancel := context.WithTimeout(ctx, vacateLimit)
		defer cancel()
		holder, freed, vacateErr := p.cfg.Store.Vacate(limit, used.Dir)
		switch {
		case holder != "":
			used.Holder = holder
		case freed && vacateErr == nil:
			g, err = create()
		case vacateErr != nil:
			err = errors.Join(err, vacateErr)
		}
	}
	if err != nil {
		return nil, err
	}
	if from, moved := path.Moved(g); moved {
		Log(ctx, AppID(id), "", nil).Warnf("container %s: the cgroup %s is in use, so the container is in %s", id, from, g.Path())
	}
	tellIgnored(ctx, id, res)
	return g, nil
}

// tellIgnored logs the limits of a container that have not been set.
func tellIgnored(ctx context.Context, id string, res *specs.LinuxResources) {
	if ignored := cgroup.Ignored(res); len(ignored) > 0 {
		Log(ctx, AppID(id), "", nil).Infof("container %s: limits that are not set: %s", id, strings.Join(ignored, ", "))
	}
}
