package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Collector removes containers and pods from disk alone. It does so whether the shim is
// dead, runs, or was killed at any step, and even if an earlier collector was.
type Collector struct {
	Store *Store
	// OpenStage1 returns the stage1 of an existing pod directory. It is the image with
	// which the pod was started, whatever image is installed by now.
	OpenStage1 func(podDir string) (Stage1, error)
}

// unfinished is the content of CollectedExit.Rest. It has the record of the bundle,
// because containerd removes the bundle after the answer to `delete`.
type unfinished struct {
	ID     string       `json:"id"`
	Bundle string       `json:"bundle"`
	Record bundleRecord `json:"record"`
}

func (u unfinished) String() string {
	b, err := json.Marshal(u)
	if err != nil {
		panic(err) // it has only strings, numbers, and a time that was read from JSON
	}
	return string(b)
}

// Collect does the steps that a container's Delete has not done (requirements.md#D3 to
// requirements.md#D7): it kills the processes, unmounts the root and removes the cgroup
// and the files. If the app was the last one of a pod whose shim is dead, it removes the
// pod. It touches only the pod and app that rkt.json in the bundle names, and nothing of
// another boot. After a complete Delete it finds nothing to do.
//
// Collect returns the recorded exit or, without a record, code 137 and the present time.
// After an error, something is left, and another call of Collect goes on from there. If
// the shim still runs and is removing the pod, Collect returns no error, because nothing
// of the container is left. In both cases Left is set, and Finish does the rest.
func (c *Collector) Collect(ctx context.Context, bundle, namespace, id string) (CollectedExit, error) {
	exit, err := c.collect(ctx, bundle, namespace, id)
	if err != nil {
		err = fmt.Errorf("collect container %s: %w", id, err)
	}
	return exit, err
}

// HasHooks reports whether Collect would run poststop hooks, which may outlast the call.
func (c *Collector) HasHooks(bundle string) bool {
	var r bundleRecord
	if withRoot(bundle, func(b *os.Root) error { return readRecord(b, bundleFile, &r) }) != nil || r.App == "" {
		return false
	}
	d, err := c.Store.at(r.DataDir).find(r.Pod)
	if err != nil {
		return false
	}
	defer d.close()
	a, err := d.openApp(r.App)
	if err != nil || a.Record().Poststop == nil {
		return false
	}
	_, err = d.root.Lstat(a.file(poststopFile))
	return errors.Is(err, fs.ErrNotExist)
}

// Finish goes on where a Collect has run out of time, and gives entrypoints the time that
// the ABI has for them. If the shim is running and is removing the pod, Finish waits for
// it. If the shim dies before it is done, Finish removes the pod itself. A shim that hangs is
// killed, unless its pod has other apps, which containerd may know.
func (c *Collector) Finish(ctx context.Context, rest string, hangs bool) error {
	var u unfinished
	if err := json.Unmarshal([]byte(rest), &u); err != nil {
		return fmt.Errorf("finish a collection: %w", err)
	}
	s, err := OpenStore(u.Record.DataDir)
	if err != nil {
		return err
	}
	s.Hooks = c.Store.Hooks
	d, err := s.find(u.Record.Pod)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	if !d.mine() {
		return nil // another process is about to remove the directory
	}
	p := &podCollector{dir: d, open: c.OpenStage1, limit: ctx, patience: ctx}
	if hangs {
		if err := p.killUnused(ctx, u.Record.App); err != nil {
			return fmt.Errorf("kill the server of container %s, which does not answer: %w", u.ID, err)
		}
	}
	if _, err := p.container(ctx, u); err != nil {
		return fmt.Errorf("collect container %s: %w", u.ID, err)
	}
	if err := p.finish(ctx); err != nil {
		return fmt.Errorf("remove the pod of container %s: %w", u.ID, err)
	}
	return nil
}

// killUnused kills the pod's shim, unless the pod has other apps than this one, or is a sandbox's and this is an app.
func (p *podCollector) killUnused(ctx context.Context, app AppName) error {
	names, err := p.dir.apps()
	if err != nil {
		return err
	}
	if sandbox, err := p.dir.hasSandbox(); err != nil || sandbox && app != "" {
		return err
	}
	if slices.ContainsFunc(names, func(n AppName) bool { return n != app }) {
		return nil
	}
	return p.dir.killShim(ctx)
}

func (c *Collector) collect(ctx context.Context, bundle, namespace, id string) (CollectedExit, error) {
	var r bundleRecord
	err := withRoot(bundle, func(b *os.Root) error { return readRecord(b, bundleFile, &r) })
	if errors.Is(err, fs.ErrNotExist) {
		return CollectedExit{}, nil
	}
	if errdefs.IsDataLoss(err) && !c.Store.knows(bundle) {
		// The record was lost with the power. Containers of that boot have nothing but files.
		return CollectedExit{}, unmountTree(filepath.Join(bundle, "rootfs"))
	}
	if err != nil {
		return CollectedExit{}, err
	}
	boot, err := proc.BootID()
	if err != nil || r.BootID != boot {
		return CollectedExit{}, err // after a reboot no exit is reported
	}
	s := c.Store
	if r.DataDir != s.dir {
		// The daemon's environment has changed since the container was made. Use the data
		// directory of the record.
		s = s.at(r.DataDir)
	}
	d, err := s.find(r.Pod)
	if err == nil && !d.mine() {
		d.close()
		err = fs.ErrNotExist // another `delete` is about to remove the directory
	}
	if errors.Is(err, fs.ErrNotExist) {
		return r.Exit.collected(), unmountTree(filepath.Join(bundle, "rootfs"))
	}
	if err != nil {
		return CollectedExit{}, err
	}
	defer d.close()
	if d.shim.Namespace != namespace {
		return CollectedExit{}, fmt.Errorf("%s names pod %s, which is of namespace %s: nothing done", bundleFile, r.Pod, d.shim.Namespace)
	}
	return c.collectFrom(ctx, d, r, bundle, id)
}

// knows reports whether a pod of this boot may have an app or sandbox with a bundle.
func (s *Store) knows(bundle string) bool {
	for _, state := range []string{dirEmbryo, dirPrepare, dirRun, dirExited} {
		names, err := readNames(s.path(state, ""))
		if err != nil {
			return true
		}
		for _, name := range names {
			if isUUID(name) && s.mayHave(state, name, bundle) {
				return true
			}
		}
	}
	return false
}

// mayHave reports whether a pod is of this boot and has an app or sandbox with a bundle, or cannot be
// read.
func (s *Store) mayHave(state, uuid, bundle string) bool {
	d, err := s.open(state, uuid)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer d.close()
	current, err := d.thisBoot()
	if !d.mine() || err == nil && !current {
		return false
	}
	bundles, err := d.bundles()
	return err != nil || slices.Contains(bundles, bundle)
}

// bundles returns the bundles of a pod's sandbox and apps.
func (d *Dir) bundles() (bundles []string, err error) {
	sandbox, err := d.openSandbox()
	if err == nil {
		bundles = append(bundles, sandbox.record.Bundle)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names, err := d.apps()
	for _, name := range names {
		a, openErr := d.openApp(name)
		if openErr != nil {
			return nil, openErr
		}
		bundles = append(bundles, a.record.Bundle)
	}
	return bundles, err
}

// collectFrom collects an app, and the pod if the app was its last one.
func (c *Collector) collectFrom(ctx context.Context, d *Dir, r bundleRecord, bundle, id string) (CollectedExit, error) {
	limit, cancel := context.WithTimeout(ctx, entrypointLimit)
	defer cancel()
	patience, cancel := context.WithTimeoutCause(ctx, removalPatience, errAtWork)
	defer cancel()
	p := &podCollector{dir: d, open: c.OpenStage1, limit: limit, patience: patience}
	u := unfinished{ID: id, Bundle: bundle, Record: r}
	exit, err := p.container(ctx, u)
	if err == nil {
		err = p.finish(ctx)
	}
	u.Record.Exit = exit.record()
	exit.Rest, exit.Left = u.String(), err != nil
	if errors.Is(err, errAtWork) {
		err = nil
	}
	return exit, err
}

// container collects the app or the sandbox that a record in a bundle names.
func (p *podCollector) container(ctx context.Context, u unfinished) (CollectedExit, error) {
	exit := u.Record.Exit.collected()
	if u.Record.App == "" {
		return p.collectSandbox(ctx, u.ID, exit)
	}
	a, err := p.dir.openApp(u.Record.App)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = backlink{u.Bundle, p.dir.uuid, u.Record.App}.unmount()
	case err == nil && a.record.ID != u.ID && a.record.ID != "":
		err = fmt.Errorf("%s names app %s, which is container %s: nothing done", bundleFile, u.Record.App, a.record.ID)
	case err == nil:
		a.record.Bundle = u.Bundle // the record of the app may be lost
		exit, err = p.app(ctx, a, exit)
	}
	return exit, err
}
