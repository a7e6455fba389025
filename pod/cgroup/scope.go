package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// A scope is a cgroup that systemd knows. If the client names a scope and systemd runs,
// the cgroups are these:
//
//	…/slice/prefix-name.scope      systemd's, delegated
//	   ├─ app                      the app's cgroup
//	   └─ placeholder              version 2 only: a process that does nothing
//
// A scope begins with a process and ends with its last one. The placeholder exists from the
// beginning of the scope until the cgroup is removed. So limits can be set before the app's
// process exists, and statistics can be read after it has ended. The app has a cgroup of
// its own because systemd may write to the scope's cgroup at any time, for instance at a
// reload, but never to cgroups below it. The scope has the same limits, as properties that systemd
// writes (properties.go), because a weight counts only among the siblings of the scope.
const (
	scopeApp         = "app"
	scopePlaceholder = "placeholder"
)

// scopeLimit is how long systemd may take to start a scope.
const scopeLimit = 20 * time.Second

// leaveLimit is how long to wait for the end of a scope. The scope ends even without the
// wait, but its name cannot be reused before its end.
const leaveLimit = time.Second

// units is the part of systemd that this package uses.
type units interface {
	// startScope starts a delegated scope with limits that begins with a process, and returns
	// when it has. The error unwraps to errTaken if there is a unit of that name.
	startScope(ctx context.Context, u unit, pid int, limits properties) error
	// setProperties changes the limits of a unit, and returns when its cgroup has them. systemd
	// logs and ignores a value that the kernel refuses.
	setProperties(ctx context.Context, name string, limits properties) error
	// stopScope returns when there is no unit of that name.
	stopScope(ctx context.Context, name string) error
}

// scopeOf returns the scope for a path. It returns false if the path does not become a
// scope.
func (h *hierarchies) scopeOf(p Path) (unit, bool) {
	if h.systemd == nil || !p.isTriple() {
		return unit{}, false
	}
	u, err := parseTriple(p.Spec)
	return u, err == nil && u.isScope()
}

// claimScope claims a cgroup in a new scope.
func (h *hierarchies) claimScope(u unit, children *proc.Children, limits properties) (g *Group, err error) {
	child, err := children.StartStopped()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, child.Kill())
		}
	}()
	start, err := proc.StartTime(child.PID())
	if err != nil {
		return nil, err
	}
	// If all processes of the app are exempt from OOM kills, the kernel must not choose the placeholder, which keeps
	// the scope. Without the right to do this it is the last one to be chosen, for it is the smallest.
	_ = proc.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", child.PID()), "-1000")
	if err = h.startScope(u, child.PID(), limits); err != nil {
		return nil, err
	}
	// From here on the scope ends when the placeholder ends.
	if err := h.setAside(u, child.PID()); err != nil {
		return nil, fmt.Errorf("scope %s: %w", u.name, err)
	}
	if g, err = h.claim(h.record(filepath.Join(u.path(), scopeApp))); err != nil {
		return nil, fmt.Errorf("scope %s: %w", u.name, err)
	}
	g.record.Placeholder = &Placeholder{PID: child.PID(), StartTime: start}
	return g, nil
}

// startScope starts a scope with a process.
func (h *hierarchies) startScope(u unit, pid int, limits properties) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), scopeLimit, fmt.Errorf("systemd did not start it within %s", scopeLimit))
	defer cancel()
	if err := h.systemd.startScope(ctx, u, pid, limits); err != nil {
		return fmt.Errorf("scope %s in %s: %w", u.name, u.slice, err)
	}
	return nil
}

// setAside moves the placeholder to a cgroup below the scope's: on version 2 a cgroup must
// not have processes if cgroups below it have controllers.
func (h *hierarchies) setAside(u unit, pid int) error {
	if h.version != 2 {
		return nil
	}
	dir := filepath.Join(h.roots[""], u.path(), scopePlaceholder)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return moveTo(dir, pid)
}

// scope returns the name of the group's scope, or "" if it is in none.
func (g *Group) scope() string {
	if g.record.Placeholder == nil {
		return ""
	}
	return filepath.Base(filepath.Dir(g.Path()))
}

// changeScope calls change, which changes the limits of the app's cgroup, between the changes of the scope's: the
// scope's bounds are raised before and lowered after it, so that they never are below the app's. If anything fails,
// the scope has its old limits again, and changeScope has called restore if change had succeeded.
func (g *Group) changeScope(h *hierarchies, from, to *specs.LinuxResources, change, restore func() error) error {
	name := g.scope()
	if name == "" || h.systemd == nil {
		return change()
	}
	old, err := scopeLimits(from, g.record.Version)
	if err != nil {
		return err
	}
	wanted, err := scopeLimits(to, g.record.Version)
	if err != nil {
		return err
	}
	set := func(limits properties) error {
		if len(limits) == 0 {
			return nil
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), scopeLimit, fmt.Errorf("systemd did not change it within %s", scopeLimit))
		defer cancel()
		if err := h.systemd.setProperties(ctx, name, limits); err != nil {
			return fmt.Errorf("scope %s: %w", name, err)
		}
		return nil
	}
	changed := wanted.without(old)
	higher := changed.raised(old)
	if err := set(higher); err != nil {
		return err
	}
	if err := change(); err != nil {
		return errors.Join(err, set(old.without(wanted).only(higher)))
	}
	if err := set(changed.except(higher)); err != nil {
		return errors.Join(err, restore(), set(old.without(wanted)))
	}
	return nil
}

// Beside returns the cgroupsPath of a cgroup with a name beside this one. The one beside a cgroup in a scope has
// a scope of its own in the same slice, because the scope's limits are the app's.
func (g *Group) Beside(name string) string {
	if g.scope() == "" {
		return filepath.Join(filepath.Dir(g.Path()), name) // a relative path stays relative
	}
	slice := filepath.Base(filepath.Dir(filepath.Dir(g.Path())))
	if slice == "/" {
		slice = "-.slice"
	}
	return slice + "::" + name
}

// leaveScope ends the scope of the cgroup: the placeholder, the unit, and the directories
// that systemd does not know.
func (g *Group) leaveScope(ctx context.Context) {
	p := g.record.Placeholder
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveLimit)
	defer cancel()
	if q, err := proc.Open(p.PID, p.StartTime); err == nil {
		_ = q.Signal(unix.SIGKILL)
		_ = q.Wait(ctx)
		_ = q.Close()
	}
	for _, dir := range g.dirs {
		scope := filepath.Dir(dir)
		if g.record.Version == 2 {
			_ = removeBelow(ctx, filepath.Join(scope, scopePlaceholder))
		} else if dir != g.record.Dirs["name=systemd"] {
			_ = rmdir(scope) // fails in a hierarchy in which systemd has the scope: systemd removes it there
		}
	}
	if h, err := host(); err == nil && h.systemd != nil {
		_ = h.systemd.stopScope(ctx, g.scope())
	}
}
