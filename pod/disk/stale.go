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

// Limits of a single CollectStale, because it runs while a container is being started,
// and the container must not wait long.
const (
	staleLooks       = 6 // pods of one state that were looked at and were not stale
	staleLimit       = 2 * time.Second
	staleEntrypoints = 500 * time.Millisecond // for each pod
	embryoGrace      = time.Minute            // how long after a directory was made its maker may still be about to lock it
)

// CollectStale removes pods for which containerd will call no `delete`: pods of another
// boot, of which it signals no process; directories that a shim left half made; and
// pods whose shim is dead and whose bundles are gone. It leaves rkt's own pods alone.
//
// It is called whenever a pod is started, and is cheap if no pod is stale: of many
// running pods it looks at a few, chosen at random. After an error with one pod it goes
// on with the next.
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
		return false, nil // the pod has moved to another state
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
			err = nil // another process removes the pod
		}
	}()
	if !current {
		// Only its files are left. Its pids may belong to other processes now.
		return true, p.removeOtherBoots(ctx)
	}
	if proc.Alive(d.shim.Shim.PID, d.shim.Shim.StartTime) {
		return false, nil
	}
	return true, p.collectForgotten(ctx)
}

// removeUnfilled removes a directory without shim.json if it has no files except
// pod.lck and the spare of shim.json. Its maker died before it could write shim.json,
// or its remover after it had removed shim.json and before it removed pod.lck. A
// directory with any other file is rkt's. A directory younger than embryoGrace is left
// alone, because its maker may be running.
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
		return err // another process is removing the pod
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
	// The mounts of the image ended with that boot, so attach the image again to
	// execute its gc. If that fails, go on without gc: the reboot may have removed
	// everything that gc would remove.
	if s, err := p.open(p.dir.Path()); err == nil && s.Has(abi.GC) && s.Attach(p.dir.Path()) == nil {
		p.stage1 = s
	}
	return p.remove(ctx)
}

// collectForgotten collects a pod whose shim is dead and that containerd has forgotten:
// none of its apps has a bundle any more.
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
			return nil // containerd will call `delete`, which reports the exit
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
