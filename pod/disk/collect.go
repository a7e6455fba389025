package disk

import (
	"context"
	"encoding/json"
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

// containerd kills `delete` after 5 seconds.
const (
	// entrypointLimit is for all entrypoints together: the collector does by force
	// what they leave undone.
	entrypointLimit = 1500 * time.Millisecond
	// removalPatience is how long Collect waits for the living shim that removes the
	// pod. That takes longer if the machine is busy, or the stage1 slow: the ABI gives
	// its entrypoints ten seconds each.
	removalPatience = 2 * time.Second
	// A dying process has no locks any more, and may still be seen: on a busy host
	// for a while.
	dyingLimit = time.Second
)

// Collector removes containers and pods from disk alone: with the shim dead,
// alive, or killed in the middle of any step, its own included.
type Collector struct {
	Store *Store
	// OpenStage1 returns the stage1 of an existing pod directory: of the image
	// that the pod was started with, whatever is installed by now.
	OpenStage1 func(podDir string) (Stage1, error)
}

// Stage1 is what a Collector needs of a stage1. All but Call are methods of
// pod.Stage1.
type Stage1 interface {
	Has(abi.Entrypoint) bool
	Attach(podDir string) error
	Detach(podDir string) error
	// Call executes stop, app/stop, app/rm or gc for the pod in podDir. leader is the
	// pid that `run` has reported, or 0.
	Call(ctx context.Context, podDir string, leader int, r abi.Request) error
}

// CollectedExit is how a collected container ended.
type CollectedExit struct {
	PID   int
	Code  uint32
	At    time.Time
	Found bool // there was a container of ours to collect
	// Rest is what Finish has to be called with because Collect has not seen the end
	// of the container, or of its pod. It is empty if there is nothing to finish.
	Rest string
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

// collected is what was found out by an earlier call that did not finish.
func (e *exitRecord) collected() CollectedExit {
	if e == nil {
		return CollectedExit{}
	}
	return CollectedExit{PID: e.PID, Code: e.Code, At: e.At, Found: true}
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

// record is the inverse of collected.
func (e CollectedExit) record() *exitRecord {
	if !e.Found {
		return nil
	}
	return &exitRecord{PID: e.PID, Code: e.Code, At: e.At}
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
		a.record.Bundle = u.Bundle // also if its record was lost
		exit, err = p.app(ctx, a, exit)
	}
	return exit, err
}

// podCollector collects a pod, or some of its apps.
type podCollector struct {
	dir   *Dir
	open  func(string) (Stage1, error)
	limit context.Context // of all entrypoints together
	// patience is how long to wait for a living shim that removes the pod.
	patience context.Context

	stage1 Stage1 // once it was needed
}

// entrypoint executes an entrypoint if the stage1 has it. What it fails to do is
// done without it, so its error is of no interest; a stage1 that cannot be
// opened is the same.
func (p *podCollector) entrypoint(e abi.Entrypoint, a *AppDir) {
	if p.stage1 == nil {
		s, err := p.open(p.dir.Path())
		if err != nil {
			return
		}
		p.stage1 = s
	}
	if !p.stage1.Has(e) || p.limit.Err() != nil {
		return
	}
	leader := 0
	if sup := p.dir.shim.Supervisor; sup != nil {
		leader = sup.Leader
	}
	r := abi.Request{Entrypoint: e, Pod: p.dir.uuid}
	if a != nil {
		r.App, r.Container, r.Bundle = string(a.name), a.record.ID, a.bundle()
	}
	_ = p.stage1.Call(p.limit, p.dir.Path(), leader, r)
}

// bundle returns what RKT_BUNDLE names for the app: a derived bundle, if Create
// has made one.
func (a *AppDir) bundle() string {
	derived := filepath.Join(a.Path(), "bundle")
	if _, err := os.Lstat(filepath.Join(derived, "config.json")); err == nil {
		return derived
	}
	return a.record.Bundle
}

// supervised reports whether the pod's supervisor lives.
func (p *podCollector) supervised() bool {
	sup := p.dir.shim.Supervisor
	return sup != nil && proc.Alive(sup.PID, sup.StartTime)
}

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
	// Nothing is left because of a hook that fails, and containerd would take an
	// error for an exit that nobody knows.
	if err := a.Poststop(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("collected all the same")
	}
	return exit, a.RemoveFiles()
}

// unpause lets the app's processes die of what the stage1 is about to do. What it
// fails to do is done without it.
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
	if group.Replaced() {
		return nil, nil // by another container of the same id
	}
	if err := group.Kill(ctx); err != nil {
		return nil, err
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
	return cgroup.Path{Spec: spec.Linux.CgroupsPath, Namespace: a.pod.shim.Namespace, ID: a.record.ID}
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
	err = locked(a.pod.root, func() error { return a.backlink().recordExit(exit) })
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	a.pod.store.Fault("record exit")
	return exit, err
}

// finish removes the pod if it has no apps, is no sandbox any more, and its shim is
// dead.
func (p *podCollector) finish(ctx context.Context) error {
	d := p.dir
	names, err := d.apps()
	if err != nil || len(names) > 0 {
		return err
	}
	if alive, err := d.hasSandbox(); err != nil || alive {
		return err
	}
	if d, err = p.abandonedDir(); err != nil || d == nil {
		return err
	}
	if d != p.dir {
		p.dir = d
		defer d.close()
	}
	if err := p.stopSupervisor(ctx); err != nil {
		return err
	}
	if err := d.Evict(ctx); err != nil {
		return err
	}
	d.store.Fault("stop")
	if d.state == dirRun {
		if err := d.move(dirExited); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return p.remove(ctx)
}

// abandonedDir waits while a living shim removes the pod, which has no app any more.
// It returns the directory as it is then if the shim is dead, and nil if there is
// nothing to do: the directory is gone, or the shim has failed to remove it, has said
// so in its log, and goes on to live.
func (p *podCollector) abandonedDir() (*Dir, error) {
	d := p.dir
	owner, err := proc.Open(d.shim.Shim.PID, d.shim.Shim.StartTime)
	if err != nil {
		if errors.Is(err, proc.ErrGone) {
			return d, nil
		}
		return nil, err
	}
	defer owner.Close()
	now, err := d.awaitRemoval(p.patience)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dying, cancel := context.WithTimeout(p.patience, dyingLimit)
	defer cancel()
	if owner.Wait(dying) != nil {
		now.close()
		return nil, nil
	}
	return now, nil
}

// claim waits until nobody else removes the pod. It is fs.ErrNotExist if somebody has
// done so. One at a time: gc makes the stage1's tree visible again, and must not do that
// in a directory that another one is about to remove.
func (p *podCollector) claim(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, entrypointLimit+lockLimit)
	defer cancel()
	if err := p.dir.takeLock(wait); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.dir.uuid, err)
	}
	return nil
}

// remove executes gc, which has what is left of the entrypoints' time, and
// removes the directory.
func (p *podCollector) remove(ctx context.Context) error {
	err := p.claim(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.entrypoint(abi.GC, nil)
	if p.stage1 != nil {
		if err := p.stage1.Detach(p.dir.Path()); err != nil {
			return err
		}
	}
	p.dir.store.Fault("detach")
	return p.dir.Remove(ctx)
}
