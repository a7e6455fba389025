package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

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
// reload, but never to cgroups below it.
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
	// startScope starts a delegated scope that begins with a process, and returns
	// when it has. The error unwraps to errTaken if there is a unit of that name.
	startScope(ctx context.Context, u unit, pid int) error
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
func (h *hierarchies) claimScope(u unit, children *proc.Children) (g *Group, err error) {
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
	if err = h.startScope(u, child.PID()); err != nil {
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
func (h *hierarchies) startScope(u unit, pid int) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), scopeLimit, fmt.Errorf("systemd did not start it within %s", scopeLimit))
	defer cancel()
	if err := h.systemd.startScope(ctx, u, pid); err != nil {
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
	return proc.WriteFile(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
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
		_ = h.systemd.stopScope(ctx, filepath.Base(filepath.Dir(g.Path())))
	}
}
