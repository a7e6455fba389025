package disk

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// cgroupPath returns the path at which a shim makes the cgroup of a container of the pod.
func (d *Dir) cgroupPath(spec, id string) cgroup.Path {
	if d.shim.Cgroups == nil && !strings.Contains(spec, ":") && !filepath.IsAbs(spec) {
		spec = "" // the pod was made by a release that did not know relative paths
	}
	return cgroup.Path{Spec: spec, Namespace: d.shim.Namespace, ID: id, Daemon: d.shim.Cgroups}
}

// take reports whether a recorded cgroup still belongs to the pod. If the pod's shim is
// dead, take locks the cgroup with Group.Take.
func (d *Dir) take(ctx context.Context, g *cgroup.Group) (bool, error) {
	if proc.Alive(d.shim.Shim.PID, d.shim.Shim.StartTime) {
		return !g.Replaced(), nil
	}
	return g.Take(ctx)
}
