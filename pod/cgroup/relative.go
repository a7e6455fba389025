package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Own returns the cgroups of this process, by controller, as /proc/self/cgroup lists them.
func Own() (map[string]string, error) { return of("self") }

// Of returns the cgroups of a process, by controller; "" is that of version 2.
func Of(pid int) (map[string]string, error) { return of(strconv.Itoa(pid)) }

func of(process string) (map[string]string, error) {
	of, err := cgroups.ParseCgroupFile("/proc/" + process + "/cgroup")
	if err != nil {
		return nil, fmt.Errorf("look for the cgroups of process %s: %w", process, err)
	}
	return of, nil
}

// locate returns the record of the cgroup at a resolved path. As with runc, a relative path
// is below containerd's own cgroup on version 1. On version 2 it is below the parent of
// that cgroup, because a cgroup with processes cannot give controllers to cgroups below it.
func (h *hierarchies) locate(path string, daemon map[string]string) (Record, error) {
	if filepath.IsAbs(path) {
		return h.record(path), nil
	}
	bases := map[string]string{}
	for controller := range h.roots {
		base, err := h.base(controller, daemon)
		if err != nil {
			return Record{}, fmt.Errorf("cgroupsPath %q is relative to containerd's own cgroup: %w", path, err)
		}
		bases[controller] = base
	}
	if all := distinct(bases); len(all) == 1 {
		return h.record(filepath.Join(all[0], path)), nil
	}
	r := Record{Version: h.version, Path: path, Dirs: map[string]string{}}
	for controller, base := range bases {
		r.Dirs[controller] = filepath.Join(h.roots[controller], base, path)
	}
	r.unify(h, path) // where runc makes it
	return r, nil
}

// base returns the cgroup, below the root of a controller's mount, in which relative paths
// begin.
func (h *hierarchies) base(controller string, daemon map[string]string) (string, error) {
	own, ok := daemon[controller]
	if !ok {
		return "", fmt.Errorf("which is not known for the controller %q", controller)
	}
	if strings.HasPrefix(own+"/", "/../") { // the kernel writes this for a cgroup outside of the cgroup namespace
		return "", fmt.Errorf("which is %s for the controller %q, out of the cgroup namespace", own, controller)
	}
	if h.version == 2 {
		return filepath.Dir(filepath.Join("/", own)), nil
	}
	// In a container whose cgroup namespace is the host's, containerd's path is the host's,
	// and the root of the mount is the container's cgroup.
	_, root, err := cgroups.FindCgroupMountpointAndRoot("", controller)
	if err != nil {
		return "", fmt.Errorf("controller %q: %w", controller, err)
	}
	base, err := filepath.Rel(root, own)
	if err != nil || !filepath.IsLocal(base) {
		return "", fmt.Errorf("which is %s for the controller %q, out of the mounted %s", own, controller, root)
	}
	return filepath.Join("/", base), nil
}

// reachable returns an error if an OCI runtime could not find the cgroup by its path. An OCI
// runtime runs in the cgroups of this process, so it finds a relative path only if these
// are also containerd's cgroups.
func (r *Record) reachable(daemon map[string]string) error {
	if filepath.IsAbs(r.Path) {
		return nil
	}
	own, err := Own()
	if err != nil {
		return err
	}
	for _, controller := range slices.Sorted(maps.Keys(r.Dirs)) {
		if own[controller] != daemon[controller] {
			return fmt.Errorf("cgroupsPath %q is relative to containerd's own cgroup, which differs between the hierarchies,"+
				" and the shim is in another one (%s, not %s, for the controller %q): use an absolute path, or no ShimCgroup",
				r.Path, own[controller], daemon[controller], controller)
		}
	}
	return nil
}

// Contains returns an error if a process is outside of the cgroup, and of those below it, in any
// hierarchy in which the cgroup has a directory. A process that has ended is no error.
//
// Images of an earlier release do not know that an app enters version 2 beside version 1. Contains moves their
// processes there. That takes some milliseconds, for which an app's own process need not wait if it enters by itself.
func (g *Group) Contains(pid int) error {
	if of, err := Of(pid); err == nil && g.isAll(of) {
		return nil
	}
	// The process is elsewhere or in a cgroup below, or this process sees other paths than the mounts have.
	for _, dir := range g.dirs {
		pids, err := pidsBelow(dir)
		if err != nil {
			return err
		}
		if slices.Contains(pids, pid) || dir == g.record.Unified && moveTo(dir, pid) == nil {
			continue
		}
		return g.misses(pid, dir)
	}
	return nil
}

// moveTo moves a process to the cgroup of a directory.
func moveTo(dir string, pid int) error {
	return proc.WriteFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
}

// isAll reports whether the cgroup is that of a process, by its cgroups in each hierarchy.
func (g *Group) isAll(of map[string]string) bool {
	for controller := range g.record.made() {
		if path, ok := of[controller]; !ok || path != g.Path() {
			return false
		}
	}
	return true
}

// misses returns the error for a process that is not in a directory of the cgroup.
func (g *Group) misses(pid int, dir string) error {
	if s, err := proc.ReadStat(pid); err != nil || s.State == 'Z' {
		return nil
	}
	text := fmt.Sprintf("process %d is outside of its cgroup %s: it is not in %s, so limits, statistics and kills would miss it."+
		" The stage1 has put it elsewhere", pid, g.Path(), dir)
	if !filepath.IsAbs(g.Path()) { // crun takes relative paths for absolute ones
		text += "; cgroupsPath is relative to containerd's own cgroup, which differs between the hierarchies: use an absolute path"
	}
	return errors.New(text)
}
