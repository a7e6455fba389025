package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Collector removes containers and pods from disk alone: with the shim dead,
// alive, or killed in the middle of any step, its own included.
type Collector struct {
	Store *Store
	// OpenStage1 returns the stage1 of an existing pod directory: of the image
	// that the pod was started with, whatever is installed by now.
	OpenStage1 func(podDir string) (Stage1, error)
}

// unfinished is the content of CollectedExit.Rest. containerd removes the bundle when
// it has the answer, so the bundle's record goes along.
type unfinished struct {
	ID     string       `json:"id"`
	Bundle string       `json:"bundle"`
	Record bundleRecord `json:"record"`
}

func (u unfinished) String() string {
	b, err := json.Marshal(u)
	if err != nil {
		panic(err) // strings, numbers, and a time that JSON has given
	}
	return string(b)
}

// Collect does for one container what its Delete has not done (requirements.md#D3
// to requirements.md#D7): kills its processes, unmounts its root, removes its cgroup and
// its files, and with the last app of a pod whose shim is dead the pod. It touches only
// what rkt.json in the bundle names, and nothing of another boot. After a complete Delete
// there is nothing to do.
//
// The exit is the recorded one, else 137 and now. An error means that something
// is left; calling Collect again goes on from there. A pod without apps that its
// living shim is removing is not an error: of the container nothing is left.
// In both cases Rest is set, and Finish sees to the pod.
func (c *Collector) Collect(ctx context.Context, bundle, namespace, id string) (CollectedExit, error) {
	exit, err := c.collect(ctx, bundle, namespace, id)
	if err != nil {
		err = fmt.Errorf("collect container %s: %w", id, err)
	}
	return exit, err
}

// Finish goes on where a Collect has run out of time, with what the ABI gives to
// entrypoints. It waits for a living shim that removes the pod, and does that itself
// if the shim has died before it was done.
func (c *Collector) Finish(ctx context.Context, rest string) error {
	var u unfinished
	if err := json.Unmarshal([]byte(rest), &u); err != nil {
		return fmt.Errorf("finish a collection: %w", err)
	}
	s, err := OpenStore(u.Record.DataDir)
	if err != nil {
		return err
	}
	d, err := s.find(u.Record.Pod)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.close()
	if !d.mine() {
		return nil // another process is about to remove the directory itself
	}
	p := &podCollector{dir: d, open: c.OpenStage1, limit: ctx, patience: ctx}
	if _, err := p.container(ctx, u); err != nil {
		return fmt.Errorf("collect container %s: %w", u.ID, err)
	}
	if err := p.finish(ctx); err != nil {
		return fmt.Errorf("remove the pod of container %s: %w", u.ID, err)
	}
	return nil
}

func (c *Collector) collect(ctx context.Context, bundle, namespace, id string) (CollectedExit, error) {
	var r bundleRecord
	err := withRoot(bundle, func(b *os.Root) error { return readRecord(b, bundleFile, &r) })
	if errors.Is(err, fs.ErrNotExist) {
		return CollectedExit{}, nil
	}
	if err != nil {
		return CollectedExit{}, err
	}
	boot, err := proc.BootID()
	if err != nil || r.BootID != boot {
		return CollectedExit{}, err // whatever it was ended with that boot
	}
	s := c.Store
	if r.DataDir != s.dir {
		// The daemon's environment has changed since. The record knows better.
		s = s.at(r.DataDir)
	}
	d, err := s.find(r.Pod)
	if err == nil && !d.mine() {
		d.close()
		err = fs.ErrNotExist // another `delete` is about to remove the directory itself
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

// collectFrom collects an app, and the pod if that was its last one.
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
	if err != nil {
		u.Record.Exit = exit.record()
		exit.Rest = u.String()
	}
	if errors.Is(err, errAtWork) {
		err = nil
	}
	return exit, err
}

// errAtWork says that a living shim is removing the pod.
var errAtWork = errors.New("its shim is at work on it")

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
		a.record.Bundle = u.Bundle // also if its record was lost
		exit, err = p.app(ctx, a, exit)
	}
	return exit, err
}
