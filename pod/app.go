package pod

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// CreateApp makes an app: its first process exists and is blocked before its exec. If
// CreateApp fails, nothing of the app remains, and no event was published. For an id that
// is in use it returns errdefs.ErrAlreadyExists.
func (p *Pod) CreateApp(ctx context.Context, c AppConfig) (Status, error) {
	a, err := newApp(p, c)
	if err == nil {
		err = p.reserve(a)
	}
	if err != nil {
		return Status{}, errors.Join(err, c.Stdio.Close())
	}
	var undo cleanup
	undo.add(c.Stdio.Close)
	if err := a.create(ctx, &undo); err != nil {
		// No client has seen the app, and none sees it during the undo, so the end of its
		// process has no event.
		_ = a.step(stepDeleted)
		err = undo.run(a.session.failure(a.name, err))
		if s := p.leave(a); s != nil {
			err = errors.Join(err, p.end(ctx, s))
		}
		return Status{}, errors.Join(err, p.forget(ctx, a))
	}
	return a.status(), nil
}

// ReadSpec reads the text of a config.json, for AppConfig. If the text is no OCI runtime
// spec, it returns errdefs.ErrInvalidArgument.
func ReadSpec(id AppID, bundle string, text []byte) (*spec.App, error) {
	s, err := spec.Read[specs.Spec](text)
	if err != nil {
		return nil, fmt.Errorf("container %s: %s/config.json is not an OCI runtime spec: %v: %w", id, bundle, err, errdefs.ErrInvalidArgument)
	}
	return s, nil
}

// CheckApp refuses a spec with which no stage1 can make an app.
func CheckApp(id AppID, bundle string, s *spec.App) error {
	if err := checkVersion(s.OCI.Version); err != nil {
		return fmt.Errorf("container %s: %s/config.json: %w", id, bundle, err)
	}
	if s.OCI.Process == nil {
		return fmt.Errorf("container %s: %s/config.json has no process: %w", id, bundle, errdefs.ErrInvalidArgument)
	}
	if s.OCI.Root == nil {
		return fmt.Errorf("container %s: %s/config.json has no root: %w", id, bundle, errdefs.ErrInvalidArgument)
	}
	if err := errors.Join(checkUser(s.OCI.Process.User), checkConsole(s.OCI.Process)); err != nil {
		return fmt.Errorf("container %s: %s/config.json: %w", id, bundle, err)
	}
	return nil
}

// checkUser refuses ids that name nobody. In setresuid(2) the number 4294967295 means the id that the
// process has, which is that of root.
func checkUser(u specs.User) error {
	const none = math.MaxUint32
	if u.UID == none || u.GID == none || slices.Contains(u.AdditionalGids, none) {
		return fmt.Errorf("process.user: %d is the id of no user and no group: %w", uint32(none), errdefs.ErrInvalidArgument)
	}
	return nil
}

func newApp(p *Pod, c AppConfig) (*app, error) {
	if err := CheckApp(c.ID, c.Bundle, c.Spec); err != nil {
		return nil, err
	}
	oci := &c.Spec.OCI
	if p.cfg.Admit != nil {
		if err := p.cfg.Admit(oci.Annotations); err != nil {
			return nil, fmt.Errorf("container %s: %w", c.ID, err)
		}
	}
	_, ownNet := spec.Namespace(oci, specs.NetworkNamespace)
	events := p.cfg.Events
	if c.events != nil {
		events = c.events
	}
	a := &app{
		process: newProcess(c.ID, "", c.Stdio, c.Terminal, events, new(outbox)),
		pod:     p,
		id:      c.ID,
		config:  c,
		ownNet:  ownNet,
		turn:    newTurn(),
		execs:   map[ExecID]*execution{},
	}
	a.tag = c.Tag
	return a, nil
}

// isInit reports whether the app's first process is the first one of a PID namespace. It
// may not be, even if the spec asks for one: the operator may have allowed the stage1 to
// ignore namespaces, or the reported process may not be the app's alone.
func (a *app) isInit(made *Process) bool {
	path, asked := spec.Namespace(a.spec(), specs.PIDNamespace)
	return asked && path == "" && made.Signal == nil && !a.owns(abi.OwnProcesses) && proc.IsInit(made.PID)
}

// create does the work of CreateApp. Its undo steps leave the session alone, because the
// session may serve other apps.
func (a *app) create(ctx context.Context, undo *cleanup) error {
	s, err := a.pod.acquire(ctx, a)
	if err != nil {
		return err
	}
	return a.createIn(ctx, s, undo)
}

// createIn makes the app in a session.
func (a *app) createIn(ctx context.Context, s *session, undo *cleanup) (err error) {
	if a.debugs != "" {
		a.disk, err = s.dir.AddDebugApp(string(a.id), a.config.Bundle, a.debugs, a.spec())
	} else {
		a.disk, err = s.dir.AddApp(string(a.id), a.config.Bundle, a.spec())
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	undo.add(a.disk.Remove)
	a.pod.join(a, s, disk.AppName(a.disk.Name()))

	// Starting the stage1, mounting the root and making the cgroup do not depend on each
	// other.
	if err := a.prepare(ctx, undo); err != nil {
		return err
	}
	return a.add(ctx, undo)
}

// prepare waits for the stage1 while it mounts the root and makes the cgroup.
func (a *app) prepare(ctx context.Context, undo *cleanup) error {
	unknown, err := a.checkSpec()
	if err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	if a.config.Checkpoint != "" {
		if err := a.canCheckpoint("restore"); err != nil {
			return err
		}
	}
	if err := a.mount(ctx, undo); err != nil {
		return err
	}
	if err := a.makeCgroup(ctx, undo); err != nil {
		return err
	}
	if err := a.session.wait(ctx); err != nil {
		return err
	}
	a.tellUnknown(ctx, "config.json", "", unknown) // the pod's directory, with the journal, stays where it is now
	return nil
}

func (a *app) mount(ctx context.Context, undo *cleanup) error {
	if a.config.Rootfs.Empty() {
		a.rootfs = a.spec().Root.Path
		if !filepath.IsAbs(a.rootfs) {
			a.rootfs = filepath.Join(a.config.Bundle, a.rootfs)
		}
		if st, err := os.Stat(a.rootfs); err != nil || !st.IsDir() {
			return fmt.Errorf("container %s: its root %s is not a directory: %w", a.id, a.rootfs, errdefs.ErrInvalidArgument)
		}
		return nil
	}
	a.rootfs = filepath.Join(a.config.Bundle, "rootfs")
	if path := a.spec().Root.Path; path != "rootfs" && filepath.Clean(path) != a.rootfs && filepath.Join(a.config.Bundle, path) != a.rootfs {
		return fmt.Errorf("container %s: root.path is %q, and the client's mounts for the root are at %s: %w", a.id, path, a.rootfs, errdefs.ErrInvalidArgument)
	}
	if err := os.Mkdir(a.rootfs, 0o711); err != nil && !os.IsExist(err) {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	// Record it before the mount, because `delete` unmounts only what is recorded.
	if err := a.disk.Update(func(r *disk.AppRecord) { r.Rootfs = true }); err != nil {
		return err
	}
	if err := a.mountRoot(ctx); err != nil {
		return err
	}
	undo.add(func() error { return disk.Unmount(a.rootfs) }) // also what the stage1 has mounted there
	return nil
}

// mountRoot mounts the root, or leaves that to the stage1.
func (a *app) mountRoot(ctx context.Context) error {
	if a.owns(abi.OwnRootfs) || a.owns(abi.OwnDisks) || a.owns(abi.OwnLayers) {
		mounts, err := a.config.Rootfs.Mounts()
		if err != nil {
			return fmt.Errorf("container %s: %w", a.id, err)
		}
		if a.owns(abi.OwnRootfs) || a.owns(abi.OwnDisks) && isDisk(mounts) || a.owns(abi.OwnLayers) && isOverlayOfDisks(mounts) && a.takeLayers(mounts) {
			a.mounts = mounts
			return nil
		}
	}
	if err := a.config.Rootfs.Mount(ctx, a.rootfs); err != nil {
		return fmt.Errorf("container %s: mount its root file system on %s: %w", a.id, a.rootfs, err)
	}
	return nil
}

// Of the disks of layers a stage1 has as many in one place, and a pod has as many places for them. A machine has few places,
// and needs some for networks, volumes and further apps. The host mounts the roots for which none is left.
const (
	layersInPlace = 8
	layerPlaces   = 4
)

// takeLayers takes the places for the layers of the app's root, if the pod has them. They are the app's until it is gone.
func (a *app) takeLayers(mounts []abi.Mount) bool {
	a.pod.mu.Lock()
	defer a.pod.mu.Unlock()
	wanted, taken := (len(mounts)-1+layersInPlace-1)/layersInPlace, 0 // the last mount is the overlay
	for _, other := range a.pod.apps {
		taken += other.places
	}
	if taken+wanted > layerPlaces {
		return false
	}
	a.places = wanted
	return true
}

// isDisk reports whether a root is one mount of an image file or of a block device, of which the host need do nothing else.
func isDisk(mounts []abi.Mount) bool {
	if len(mounts) != 1 || mounts[0].Target != "" || !filepath.IsAbs(mounts[0].Source) || slices.ContainsFunc(mounts[0].Options, isOfHost) {
		return false
	}
	st, err := os.Stat(mounts[0].Source)
	return err == nil && (st.Mode().IsRegular() || st.Mode().Type() == os.ModeDevice)
}

// isOverlayOfDisks reports whether the last mount of a root is an overlay that has all its directories in the
// mounts before it, and whether each of those is as isDisk wants it.
func isOverlayOfDisks(mounts []abi.Mount) bool {
	last := len(mounts) - 1
	if last < 1 || mounts[last].Type != "overlay" || mounts[last].Target != "" {
		return false
	}
	for i := range last {
		if !isDisk(mounts[i : i+1]) {
			return false
		}
	}
	outside := func(path string) bool { return !abi.InMount(path) }
	return !slices.ContainsFunc(mounts[last].OverlayDirs(), outside) && !slices.ContainsFunc(mounts[last].Options, isOfHost)
}

// isOfHost reports whether an option names user ids or a further file of the host.
func isOfHost(option string) bool {
	return strings.HasPrefix(option, "uidmap=") || strings.HasPrefix(option, "device=")
}

func (a *app) makeCgroup(ctx context.Context, undo *cleanup) error {
	var path string
	var res *specs.LinuxResources
	if l := a.spec().Linux; l != nil {
		path, res = l.CgroupsPath, l.Resources
	}
	own := a.owns(abi.OwnResources)
	if own {
		res = nil
	}
	g, err := a.pod.newCgroup(ctx, string(a.id), path, res)
	if err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	a.cgroup = g
	undo.add(func() error {
		ctx := context.Background() // the client may have gone, but the cgroup has to be removed
		return g.End(ctx)
	})
	if !own {
		// Watch before the process exists, because the kernel may kill it at once.
		if a.oom, err = a.pod.ooms.Watch(g, a.oomKilled); err != nil {
			return fmt.Errorf("container %s: %w", a.id, err)
		}
		undo.add(a.oom.Close)
	}
	return a.disk.Update(func(r *disk.AppRecord) {
		record := g.Record()
		r.Cgroup, r.Options = &record, a.config.Arrived
	})
}

// recordProcess writes the app's process to disk, so that `delete` can kill it.
func (a *app) recordProcess(made *Process) error {
	return a.disk.Update(func(r *disk.AppRecord) {
		r.PID, r.StartTime = made.PID, made.StartTime
		r.Recorder, r.State = made.Recorder.String(), Created.String()
	})
}

// checkCgroup returns an error if the app's process is outside of the app's cgroup.
func (a *app) checkCgroup(made *Process) error {
	if made.OwnCgroup {
		return nil
	}
	if err := a.cgroup.Contains(made.PID); err != nil {
		return fmt.Errorf("container %s: stage1 %s: %w", a.id, a.session.stage1.Name(), err)
	}
	return nil
}

// add executes app/add and takes over the process that it has made.
func (a *app) add(ctx context.Context, undo *cleanup) error {
	s := a.session
	if err := a.writeBundle(); err != nil {
		return err
	}
	c := a.call(abi.AppAdd)
	c.Request.Rootfs, c.Request.Mounts = a.rootfs, a.mounts
	c.Spec = a.config.Spec
	c.Request.Cgroup = a.cgroup.ABI()
	c.Request.Terminal = a.terminal
	opts := a.config.Options
	c.Request.Options = &opts
	if path := a.config.Checkpoint; path != "" {
		c.Request.Checkpoint = &abi.Checkpoint{Path: path}
	}

	if err := a.watchNetwork(); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	undo.add(func() error { return a.network.close() })
	if err := abi.ReserveStatus(s.statusDir(), string(a.name)); err != nil {
		return fmt.Errorf("container %s: reserve room for the record of its exit: %w", a.id, err)
	}
	// From here on hooks may have run, even if the call fails.
	undo.add(func() error { return a.poststop(ctx) })
	expect := a.pod.cfg.Children.Expect()
	defer expect()
	made, err := s.stage1.Add(ctx, c, a.stdio.Files())
	if err != nil {
		return err
	}
	undo.add(func() error { return a.destroy(context.WithoutCancel(ctx)) })
	a.exists(made, a.isInit(made))
	if err := errors.Join(a.recordProcess(made), a.checkCgroup(made), a.delegate()); err != nil {
		return errors.Join(err, closeFile(made.Console))
	}
	if err := a.stdio.Begin(made.Console); err != nil {
		return fmt.Errorf("container %s: connect its streams: %w", a.id, err)
	}
	if err := a.tellNetwork(ctx, made.PID); err != nil {
		return fmt.Errorf("container %s: %w", a.id, err)
	}
	a.config.Spec = nil // it is large, and an app can live long
	if err := a.push(Event{Kind: EventCreated}); err != nil {
		return err
	}
	a.watch(ctx, a.process, made)
	return nil
}

func closeFile(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// watch waits for the exit of a process and reports it. It also records the exit, unless
// the stage1 does.
func (a *app) watch(ctx context.Context, q *process, proc *Process) {
	ctx = lasting(ctx)
	switch proc.Recorder {
	case RecordedByStage0:
		a.adopt(ctx, q, proc)
	case RecordedByStage1:
		a.adoptLater(ctx, q, proc)
	}
	if proc.Ended != nil {
		go a.awaitOutcome(ctx, q, proc)
	}
}

// adopt waits for a process that the stage1 has left to this process, and records its exit
// before it is reaped.
func (a *app) adopt(ctx context.Context, q *process, p *Process) {
	err := a.pod.cfg.Children.Adopt(p.PID, p.StartTime, func(e proc.Exit) {
		a.writeStatus(ctx, q, abi.Status(e))
	}, func(e proc.Exit) {
		a.ended(ctx, q, abi.Status(e))
	})
	if err != nil {
		a.logOf(ctx, q, err).Errorf("%s: cannot wait for its process; reported as killed", q.name())
		a.ended(ctx, q, killed())
	}
}

// adoptLater is adopt for a child of the stage1, which becomes a child of this process if
// the stage1 ends first. If the stage1 has recorded the exit of the process, that record
// counts. Otherwise the exit is the wait status or, for a process that was never started,
// 137, because the process has ended only because its parent was killed.
func (a *app) adoptLater(ctx context.Context, q *process, p *Process) {
	recorded := func(e proc.Exit) (abi.Status, bool) {
		st, ok := a.session.readStatus(a.name, q.exec)
		switch {
		case ok:
			return st, true
		case waits(q.current()):
			return killed(), false
		}
		return abi.Status(e), false
	}
	a.pod.cfg.Children.AdoptLater(p.PID, p.StartTime, func(e proc.Exit) {
		if st, ok := recorded(e); !ok {
			a.writeStatus(ctx, q, st)
		}
	}, func(e proc.Exit) {
		st, _ := recorded(e)
		a.ended(ctx, q, st)
	})
}

// awaitOutcome waits for a process whose exit the end of a call delivers.
func (a *app) awaitOutcome(ctx context.Context, q *process, p *Process) {
	st, ok := <-p.Ended
	if !ok {
		return
	}
	if p.Recorder == RecordedByStage1 {
		if q.status().State.final() {
			return
		}
		a.logOf(ctx, q, nil).Warnf("%s: process %d was reaped before stage 0 could look, the ready line names no recorder, and the stage1 has announced no exit; reported as %d", q.name(), p.PID, st.Code)
	}
	a.writeStatus(ctx, q, st)
	a.ended(ctx, q, st)
}

// writeStatus records the exit of the app for `delete`, in case this process ends. The exit
// of an exec is not recorded, because `delete` does not need it.
func (a *app) writeStatus(ctx context.Context, q *process, st abi.Status) {
	if q.exec != "" {
		return
	}
	if err := abi.WriteStatus(a.session.statusDir(), string(a.name), "", st); err != nil {
		a.logOf(ctx, q, err).Errorf("%s: cannot record its exit", q.name())
	}
}

// destroy undoes an app/add whose app no client will see.
func (a *app) destroy(ctx context.Context) error {
	for _, e := range []abi.Entrypoint{abi.AppStop, abi.AppRm} {
		if !a.session.stage1.Has(e) {
			continue
		}
		if err := a.session.stage1.Invoke(ctx, a.call(e)); err != nil {
			return err
		}
	}
	return nil
}
