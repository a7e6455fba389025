package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// app collects an app. exit is what an earlier call found out.
func (p *podCollector) app(ctx context.Context, a *AppDir, exit CollectedExit) (CollectedExit, error) {
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
		defer func() { _ = group.Release() }() // a later call goes on where this one has failed
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
	// A hook that fails leaves nothing to collect, and after an error containerd would
	// take the exit for unknown.
	if err := a.Poststop(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("collected all the same")
	}
	return exit, a.RemoveFiles()
}

// unpause thaws the app's cgroup so that its processes end when the stage1 kills them.
// Errors are ignored, because the removal of the cgroup does the same again.
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
		return nil, nil // the record itself was not written, or is gone
	}
	if a.record.Cgroup == nil {
		// It has had no process yet. Its cgroup may just have been made.
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

// cgroupPath returns where Create makes the app's cgroup.
func (a *AppDir) cgroupPath() cgroup.Path {
	var spec struct {
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
		} `json:"linux"`
	}
	// Without a readable spec there was no Create that could have got this far.
	_ = withRoot(a.record.Bundle, func(bundle *os.Root) error { return readRecord(bundle, "config.json", &spec) })
	return a.pod.cgroupPath(spec.Linux.CgroupsPath, a.record.ID)
}

// lastExit finds out how the app ended, and keeps that in the bundle: the
// directory that it was read from is about to go.
func (a *AppDir) lastExit() (CollectedExit, error) {
	exit := CollectedExit{PID: a.record.PID, Code: uint32(proc.KilledCode), At: time.Now(), Found: true}
	st, err := abi.ReadStatus(filepath.Join(a.pod.Path(), abi.StatusDir), string(a.name), "")
	if err == nil {
		exit.Code, exit.At = uint32(st.Code), st.Time
	}
	// Locked against another `delete` of the same container.
	err = locked(a.pod.root, func() error { return a.backlink().recordExit(exit.record()) })
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	a.pod.store.Fault("record exit")
	return exit, err
}
