package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// What a single CollectStale does at most: it runs at the start of a container,
// which must not wait for the past.
const (
	staleLooks       = 6 // pods of one state that turn out to be none of its business
	staleLimit       = 2 * time.Second
	staleEntrypoints = 500 * time.Millisecond // for each pod
	embryoGrace      = time.Minute            // between the making of a directory and its lock
)

// CollectStale removes what no `delete` will: pods of another boot, without
// signalling any process; directories that a shim left half made; and pods
// whose shim is dead and whose bundles are gone, so that no `delete` will come.
// Pods of rkt's own are left alone.
//
// It is meant to be called whenever a pod is started, and costs next to nothing
// when there is nothing to do: of many running pods it looks at a few, others
// each time. Errors of one pod do not keep it from the next.
func (c *Collector) CollectStale(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, staleLimit)
	defer cancel()
	var errs []error
	for _, state := range []string{dirEmbryo, dirPrepare, dirExited, dirRun} {
		names, err := readNames(c.Store.path(state, ""))
		errs = append(errs, err)
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		looks := 0
		for _, name := range names {
			if ctx.Err() != nil || looks == staleLooks {
				break
			}
			if !isUUID(name) {
				continue
			}
			stale, err := c.collectStale(ctx, state, name)
			if err != nil {
				errs = append(errs, fmt.Errorf("collect pod %s in %s: %w", name, state, err))
			}
			if !stale {
				looks++
			}
		}
	}
	return errors.Join(errs...)
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// collectStale collects one pod if it is stale, and reports whether it was.
func (c *Collector) collectStale(ctx context.Context, state, uuid string) (stale bool, err error) {
	d, err := c.Store.open(state, uuid)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // moved on
	}
	if err != nil {
		return false, err
	}
	defer d.close()
	if !d.mine() {
		return false, d.removeUnfilled(ctx)
	}
	limit, cancel := context.WithTimeout(ctx, staleEntrypoints)
	defer cancel()
	p := &podCollector{dir: d, open: c.OpenStage1, limit: limit, patience: ctx}
	current, err := d.thisBoot()
	if err != nil {
		return false, err
	}
	defer func() {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another process removes it
		}
	}()
	if !current {
		// Only files of it are left. Its pids may be those of other processes now.
		return true, p.removeOtherBoots(ctx)
	}
	if proc.Alive(d.shim.Shim.PID, d.shim.Shim.StartTime) {
		return false, nil
	}
	return true, p.collectForgotten(ctx)
}

// removeUnfilled removes a directory without shim.json in which nothing is but what
// belongs to that: its maker died before it could exchange the file for its spare, or
// its remover after it had removed the file and before pod.lck. A directory with
// anything else in it is rkt's. One that is a moment old may have a living maker.
func (d *Dir) removeUnfilled(ctx context.Context) error {
	st, err := os.Lstat(d.Path())
	if err != nil || time.Since(st.ModTime()) < embryoGrace {
		return nil
	}
	if locked, err := isLocked(d.Path()); err != nil || locked {
		return nil
	}
	entries, err := os.ReadDir(d.Path())
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if name := e.Name(); name != spareOf(shimFile) && name != podLockFile {
			return nil
		}
	}
	return d.Remove(ctx)
}

// removeOtherBoots removes a pod of another boot.
func (p *podCollector) removeOtherBoots(ctx context.Context) error {
	if locked, err := isLocked(p.dir.Path()); err != nil || locked {
		return err // another process is removing it
	}
	if sandbox, err := p.dir.openSandbox(); err == nil {
		if err := sandbox.Unlink(); err != nil {
			return err
		}
	}
	if err := p.dir.move(dirExited); err != nil {
		return err
	}
	if err := p.claim(ctx); err != nil {
		return err
	}
	// The image's mounts went with that boot, and gc is in the image. What gc
	// would remove may have gone as well, so it is not insisted on.
	if s, err := p.open(p.dir.Path()); err == nil && s.Has(abi.GC) && s.Attach(p.dir.Path()) == nil {
		p.stage1 = s
	}
	return p.remove(ctx)
}

// collectForgotten collects a pod of a dead shim that containerd has forgotten: none of
// its apps has a bundle any more.
func (p *podCollector) collectForgotten(ctx context.Context) error {
	names, err := p.dir.apps()
	if err != nil {
		return err
	}
	sandbox, err := p.dir.openSandbox()
	if errors.Is(err, fs.ErrNotExist) {
		sandbox, err = nil, nil
	}
	if err != nil || sandbox != nil && sandbox.backlink().kept() {
		return err
	}
	var apps []*AppDir
	for _, name := range names {
		a, err := p.dir.openApp(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if a.backlink().kept() {
			return nil // `delete` will come, and wants its exit
		}
		apps = append(apps, a)
	}
	for _, a := range apps {
		if _, err := p.app(ctx, a, CollectedExit{}); err != nil {
			return err
		}
	}
	if sandbox != nil {
		if err := sandbox.collect(ctx); err != nil {
			return err
		}
	}
	return p.finish(ctx)
}
