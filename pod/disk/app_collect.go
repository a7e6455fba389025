package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// hooksAwaited is how long a collection waits for poststop hooks. They go on after it, in the process that collects.
const hooksAwaited = time.Second

// app collects an app. exit is the exit that an earlier call has recorded, if there
// was one.
func (p *podCollector) app(ctx context.Context, a *AppDir, exit CollectedExit) (CollectedExit, error) {
	if a.record.Debugs == "" {
		if err := p.debugs(ctx, a.name); err != nil {
			return exit, err
		}
	}
	supervised := p.supervised()
	if supervised {
		a.unpause()
		p.entrypoint(abi.AppStop, a)
	}
	group, err := a.kill(ctx)
	if err != nil {
		return exit, err
	}
	if group != nil {
		defer func() { _ = group.Release() }() // after an error a later call locks it again
	}
	if !exit.Found {
		if exit, err = a.lastExit(); err != nil {
			return exit, err
		}
	}
	if supervised {
		p.entrypoint(abi.AppRm, a)
	}
	if err := a.backlink().unmount(); err != nil {
		return exit, err
	}
	p.dir.store.Fault("unmount rootfs")
	if group != nil {
		if err := group.Remove(ctx); err != nil {
			return exit, err
		}
	}
	p.dir.store.Fault("remove cgroup")
	// Ignore the errors of hooks: a failed hook leaves nothing to collect, and an
	// error would make containerd take the exit for unknown.
	limit, cancel := context.WithTimeoutCause(ctx, hooksAwaited, fmt.Errorf("they have not ended within %s", hooksAwaited))
	defer cancel()
	if err := a.Poststop(limit); err != nil {
		log.G(ctx).WithError(err).WithFields(log.Fields{"pod": p.dir.UUID(), "app": a.Record().ID}).Warn("collected all the same")
	}
	return exit, a.RemoveFiles()
}

// unpause thaws the app's cgroup so that its processes end when the stage1 kills them.
// Errors are ignored, because Group.Kill, which follows, thaws it again.
func (a *AppDir) unpause() {
	if r := a.record.Cgroup; r != nil {
		if group, err := cgroup.FromRecord(*r); err == nil && !group.Replaced() {
			_ = group.LetDie()
		}
	}
}

// kill ends the app's processes. It returns the app's cgroup, if it has one.
func (a *AppDir) kill(ctx context.Context) (*cgroup.Group, error) {
	if a.record.Cgroup == nil && a.record.ID == "" {
		return nil, nil // the record was never written, or was removed
	}
	if a.record.Cgroup == nil {
		// The app has had no process, but its cgroup may have been made just before
		// the crash.
		return nil, cgroup.RemoveStale(ctx, a.cgroupPath())
	}
	group, err := cgroup.FromRecord(*a.record.Cgroup)
	if err != nil {
		return nil, err
	}
	if ours, err := a.pod.take(ctx, group); err != nil || !ours {
		return nil, err
	}
	if err := group.Kill(ctx); err != nil {
		return nil, errors.Join(err, group.Release())
	}
	a.pod.store.Fault("kill cgroup")
	return group, nil
}

// cgroupPath returns the path at which Create makes the app's cgroup.
func (a *AppDir) cgroupPath() cgroup.Path {
	var spec struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		} `json:"linux"`
	}
	// If the spec cannot be read, Create has failed before it made a cgroup.
	_ = withRoot(a.record.Bundle, func(bundle *os.Root) error { return readRecord(bundle, "config.json", &spec) })
	return a.pod.cgroupPath(spec.Linux.CgroupsPath, a.record.ID)
}

// lastExit returns how the app ended, and records it in the bundle, because the
// directory from which it was read will be removed.
func (a *AppDir) lastExit() (CollectedExit, error) {
	exit := CollectedExit{PID: a.record.PID, Code: uint32(proc.KilledCode), At: time.Now(), Found: true}
	st, err := abi.ReadStatus(filepath.Join(a.pod.Path(), abi.StatusDir), string(a.name), "")
	if err == nil {
		exit.Code, exit.At = uint32(st.Code), st.Time
	}
	exit, err = recordExit(a.pod.root, a.backlink(), exit)
	a.pod.store.Fault("record exit")
	return exit, err
}

// debugs collects the debug apps of an app, and those of all apps if the shim is dead: then
// nothing serves their users any more. It does so before the app itself is collected.
func (p *podCollector) debugs(ctx context.Context, of AppName) error {
	names, err := p.dir.debugIDs()
	if err != nil || len(names) == 0 {
		return err
	}
	alive, err := p.dir.shimLives()
	if err != nil {
		return err
	}
	apps, err := p.dir.apps()
	if err != nil {
		return err
	}
	for _, id := range names {
		bundle := p.dir.debugBundle(id)
		found := false
		for _, name := range apps {
			a, err := p.dir.openApp(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if a.record.Bundle == "" { // its record was not written: rkt.json names it
				a.record.Bundle = bundle
				kept, err := a.backlink().kept()
				if err != nil {
					return err
				}
				if !kept {
					continue
				}
				a.record.ID, a.record.Debugs = id, of
			}
			if a.record.ID != id || a.record.Debugs == "" {
				continue
			}
			found = true
			if alive && a.record.Debugs != of {
				continue
			}
			if _, err := p.app(ctx, a, CollectedExit{Found: true}); err != nil {
				return err
			}
			if err := p.dir.RemoveDebug(id); err != nil {
				return err
			}
		}
		if !found && !alive {
			if err := p.dir.RemoveDebug(id); err != nil {
				return err
			}
		}
	}
	return nil
}
