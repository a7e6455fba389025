package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Limits of a single CollectStale, because it runs while a container is being started,
// and the container must not wait long.
const (
	staleLooks       = 6 // pods of one state that were looked at and were not stale
	staleErrors      = 6 // that are reported in full
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
		if err != nil {
			errs = append(errs, err)
		}
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		looks := 0
		for _, name := range names {
			if ctx.Err() != nil || looks == staleLooks {
				break
			}
			if !isUUID(name) {
				continue
			}
			found, err := c.collectStale(ctx, state, name, how{entrypoints: staleEntrypoints})
			switch {
			case err != nil: // it must not keep this call from finding stale pods
				errs = append(errs, fmt.Errorf("collect pod %s in %s: %w", name, state, err))
			case found == (staleness{}):
				looks++
			}
		}
	}
	if more := len(errs) - staleErrors; more > 0 {
		errs = append(errs[:staleErrors], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// Stale is a pod that CollectAll has found.
type Stale struct {
	UUID string
	Why  string // why it was collected, or would be
	Kept string // why it was not; empty if it was
	Err  error  // of its collection
}

// CollectAll is CollectStale for all pods, without a limit of its time. It returns the pods
// that it has collected, and those with dead shims that it has not. If dry is true, it
// collects none.
func (c *Collector) CollectAll(ctx context.Context, dry bool) ([]Stale, error) {
	var all []Stale
	for _, state := range []string{dirEmbryo, dirPrepare, dirExited, dirRun} {
		names, err := readNames(c.Store.path(state, ""))
		if err != nil {
			return all, err
		}
		slices.Sort(names)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return all, err
			}
			if !isUUID(name) {
				continue
			}
			found, err := c.collectStale(ctx, state, name, how{entrypoints: entrypointsOnDemand, dry: dry})
			if found != (staleness{}) || err != nil {
				all = append(all, Stale{UUID: name, Why: found.why, Kept: found.kept, Err: err})
			}
		}
	}
	return all, nil
}

// entrypointsOnDemand is the time for the entrypoints of a pod that an operator collects:
// gc has as much in the ABI.
const entrypointsOnDemand = 10 * time.Second

// how says how stale pods are collected.
type how struct {
	entrypoints time.Duration // for each pod
	dry         bool          // only look
}

// staleness says why a pod is stale. The zero value means that it is not. If kept is set, it
// is not collected now, for that reason.
type staleness struct{ why, kept string }

// collectStale collects one pod if it is stale.
func (c *Collector) collectStale(ctx context.Context, state, uuid string, how how) (found staleness, err error) {
	if c.Store.served(state, uuid) {
		return found, nil
	}
	d, err := c.Store.open(state, uuid)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil // the pod has moved to another state
	}
	if err != nil {
		return found, err
	}
	defer d.close()
	if !d.mine() {
		if !d.unfilled() {
			return found, nil
		}
		found.why = "its maker ended before it wrote a record"
		if how.dry {
			return found, nil
		}
		return found, d.Remove(ctx)
	}
	limit, cancel := context.WithTimeout(ctx, how.entrypoints)
	defer cancel()
	p := &podCollector{dir: d, open: c.OpenStage1, limit: limit, patience: ctx}
	current, err := d.thisBoot()
	if err != nil {
		return found, err
	}
	defer func() {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // another process removes the pod
		}
	}()
	if !current {
		// Only its files are left. Its pids may belong to other processes now.
		found.why = "it is of another boot"
		if locked, err := isLocked(p.dir.Path()); err != nil || locked {
			found.kept = "another process removes it"
			return found, err
		}
		if how.dry {
			return found, nil
		}
		return found, p.removeOtherBoots(ctx)
	}
	if proc.Alive(d.shim.Shim.PID, d.shim.Shim.StartTime) {
		return found, nil
	}
	found.why = "its shim is dead, and containerd has forgotten it"
	apps, sandbox, kept, err := p.forgotten()
	if err != nil || kept != "" || how.dry {
		found.kept = kept
		return found, err
	}
	return found, p.collectForgotten(ctx, apps, sandbox)
}

// served reports whether the shim that has made a pod runs, in fewer calls than it takes to open the
// pod: nearly all pods are served, and each start of a pod looks at some. An error means that it is not
// known.
func (s *Store) served(state, uuid string) bool {
	h, err := openHandle(s.path(state, uuid))
	if err != nil {
		return false
	}
	defer h.close()
	var r shimRecord
	if err := h.record(shimFile, &r); err != nil {
		return false
	}
	boot, err := proc.BootID()
	return err == nil && r.BootID == boot && proc.Alive(r.Shim.PID, r.Shim.StartTime)
}

// unfilled reports whether a directory without shim.json has no files except pod.lck, the link to
// its boot and the spare of shim.json. Its maker died before it could write shim.json, or its remover after it
// had removed shim.json and before it removed pod.lck. A directory with any other file is
// rkt's. A directory younger than embryoGrace may have a maker that is running.
func (d *Dir) unfilled() bool {
	st, err := os.Lstat(d.Path())
	if err != nil || time.Since(st.ModTime()) < embryoGrace {
		return false
	}
	if locked, err := isLocked(d.Path()); err != nil || locked {
		return false
	}
	entries, err := os.ReadDir(d.Path())
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return !slices.Contains([]string{spareOf(shimFile), podLockFile, bootLink}, e.Name())
	})
}

// removeOtherBoots removes a pod of another boot.
func (p *podCollector) removeOtherBoots(ctx context.Context) error {
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

// forgotten returns the apps and the sandbox, or nil, of a pod whose shim is dead. It returns
// a reason to keep the pod if containerd has not forgotten it: then containerd will call
// `delete`, which reports the exit.
func (p *podCollector) forgotten() (apps []*AppDir, sandbox *SandboxFiles, kept string, err error) {
	names, err := p.dir.apps()
	if err != nil {
		return nil, nil, "", err
	}
	sandbox, err = p.dir.openSandbox()
	if errors.Is(err, fs.ErrNotExist) {
		sandbox, err = nil, nil
	}
	if err != nil {
		return nil, nil, "", err
	}
	if sandbox != nil {
		if kept, err := sandbox.backlink().kept(); err != nil {
			return nil, nil, "", err
		} else if kept {
			return nil, nil, "containerd has not deleted its sandbox " + sandbox.record.ID, nil
		}
	}
	for _, name := range names {
		a, err := p.dir.openApp(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, "", err
		}
		if a.record.Debugs != "" {
			continue // it is collected before its target, and containerd does not know it
		}
		if kept, err := a.backlink().kept(); err != nil {
			return nil, nil, "", err
		} else if kept {
			return nil, nil, "containerd has not deleted its container " + a.record.ID, nil
		}
		apps = append(apps, a)
	}
	return apps, sandbox, "", nil
}

// collectForgotten collects a pod whose shim is dead and that containerd has forgotten:
// none of its apps has a bundle any more.
func (p *podCollector) collectForgotten(ctx context.Context, apps []*AppDir, sandbox *SandboxFiles) error {
	if err := p.debugs(ctx, ""); err != nil { // the app that they debug may be gone
		return err
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
