package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
)

var _ owner = (*sandbox)(nil)

// onDisk returns the part of the configuration that is written to disk.
func (c *SandboxConfig) onDisk() disk.Sandbox {
	return disk.Sandbox{ID: c.ID, Bundle: c.Bundle, CgroupsPath: c.CgroupsPath, Annotations: c.Annotations, Files: c.Files, Shm: c.Shm}
}

// CreateSandbox makes the pod, without a process. StartSandbox starts it. If the pod
// has a sandbox already, CreateSandbox returns errdefs.ErrAlreadyExists. If it fails,
// nothing of the sandbox remains.
func (p *Pod) CreateSandbox(ctx context.Context, c SandboxConfig) error {
	sb := &sandbox{pod: p, config: c, status: SandboxStatus{CreatedAt: time.Now()}}
	sb.session = newSession(p, sb, c.origin())
	if err := p.reserveSandbox(sb); err != nil {
		return err
	}
	s := sb.session
	err := s.make(ctx)
	if err == nil {
		err = sb.prepare(ctx)
	}
	if err == nil {
		s.step(sessionMake)
		return nil
	}
	err = fmt.Errorf("create sandbox %s: %w", c.ID, s.undo.run(err))
	p.forgetSandbox(sb, err)
	return err
}

// forgetSandbox ends a sandbox that could not be made. Calls that wait for it return.
func (p *Pod) forgetSandbox(sb *sandbox, err error) {
	sb.ended(killedExit())
	p.mu.Lock()
	p.owner = byApps{}
	p.mu.Unlock()
	sb.session.fail(err)
	sb.session.step(sessionEnd)
	p.over(sb.session)
}

func (p *Pod) reserveSandbox(sb *sandbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner.outlivesApps() != nil {
		return fmt.Errorf("sandbox %s: %w", sb.config.ID, errdefs.ErrAlreadyExists)
	}
	if err := p.owner.admit("sandbox " + sb.config.ID); err != nil {
		return err
	}
	if len(p.apps) > 0 || p.session != nil {
		return fmt.Errorf("sandbox %s: its pod was begun by a container: %w", sb.config.ID, errdefs.ErrFailedPrecondition)
	}
	p.owner, p.session = sb, sb.session
	return nil
}

// prepare writes those files of the sandbox that do not depend on the stage1.
func (sb *sandbox) prepare(ctx context.Context) (err error) {
	s := sb.session
	if sb.files, err = s.dir.NewSandboxFiles(sb.config.onDisk()); err != nil {
		return err
	}
	s.undo.add(sb.files.RemoveBacklink)
	s.undo.add(func() error { return sb.files.Remove(context.WithoutCancel(ctx), sb.group) })
	return sb.files.Make(sb.config.onDisk())
}

// StartSandbox starts the stage1 and the process that holds the pod's namespaces. It
// is legal once, after CreateSandbox. If it fails, the sandbox has stopped.
func (p *Pod) StartSandbox(ctx context.Context, id string) (SandboxStatus, error) {
	sb, err := p.findSandbox(id)
	if err != nil {
		return SandboxStatus{}, fmt.Errorf("start: %w: %w", err, errdefs.ErrFailedPrecondition)
	}
	sb.session.await(sessionState.dirDecided)
	if err := sb.step(stepSandboxStart); err != nil {
		return SandboxStatus{}, err
	}
	sb.session.step(sessionStart)
	// Do not cancel the start with its client, which sends StopSandbox later.
	if err := sb.session.start(context.WithoutCancel(ctx)); err != nil {
		sb.ended(killedExit())
		return SandboxStatus{}, fmt.Errorf("start sandbox %s: %w", id, err)
	}
	if err := sb.step(stepSandboxReady); err != nil {
		return SandboxStatus{}, err // the holder has ended already
	}
	return sb.now(), nil
}

// now returns the status that clients see.
func (sb *sandbox) now() SandboxStatus {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	st := sb.status
	st.State = sb.state.shown()
	return st
}

// beforeRun makes everything that the start of the stage1 needs, and describes the
// holder in the call. From here on, the pod's directory is not renamed until the pod
// ends.
func (sb *sandbox) beforeRun(ctx context.Context, c *Call, undo *cleanup) (err error) {
	r := &c.Request
	r.Debug = sb.config.Debug
	r.Container = sb.config.ID
	r.Sandbox = &abi.Sandbox{
		Hostname: sb.config.Hostname, Namespaces: append([]abi.Namespace(nil), sb.config.Namespaces...),
		UIDMappings: sb.config.UIDMappings, GIDMappings: sb.config.GIDMappings, Sysctl: sb.config.Sysctl,
	}
	if sb.config.UserOf != "" {
		path, err := sb.files.PinUser(sb.config.UserOf)
		if err != nil {
			return err
		}
		r.Sandbox.Namespaces = append(r.Sandbox.Namespaces, abi.Namespace{Type: "user", Path: path})
	}
	if err := sb.makeCgroup(ctx); err != nil {
		return err
	}
	r.Cgroup, r.Sandbox.Cgroup = sb.group.ABI(), sb.group.ABI()
	r.Bundle = sb.files.HolderBundle()
	if r.Rootfs, err = sb.pod.cfg.Store.HolderRoot(); err == nil {
		c.Spec, err = disk.WriteHolder(r.Bundle, r.Rootfs, r.Sandbox, sb.config.SELinux, sb.group.Path())
	}
	if err != nil {
		return fmt.Errorf("bundle of the holder: %w", err)
	}
	undo.add(sb.files.Unlink)
	if err := sb.files.Link(sb.config.onDisk()); err != nil {
		return err
	}
	sb.request = r.Sandbox
	if sb.network, err = sb.session.watchNetwork(sb.session.origin.netns, sb.networkCall); err != nil {
		return err
	}
	undo.add(func() error { return sb.network.close() })
	if sb.session.stage1.Owns(abi.OwnNamespaces) {
		return nil // the stage1 does not run the holder that the spec describes
	}
	if _, err := sb.session.stage1.CheckSpec(c.Spec); err != nil {
		return fmt.Errorf("holder of the pod: %w", err)
	}
	return nil
}

func (sb *sandbox) networkCall() Call { return sb.session.call(abi.Network, "") }

// stage1Ended ends the holder, although apps may still use its namespaces: they end,
// too.
func (sb *sandbox) stage1Ended(ctx context.Context) { sb.holder.kill(ctx) }

// remove removes the sandbox's own files, the pod, and then the file in the bundle
// that names the pod.
func (sb *sandbox) remove(ctx context.Context, removePod func() error) error {
	return errors.Join(sb.network.close(), sb.files.Remove(ctx, sb.group), removePod(), sb.files.RemoveBacklink())
}

func (sb *sandbox) makeCgroup(ctx context.Context) error {
	g, err := sb.pod.newCgroup(ctx, sb.config.ID, sb.config.CgroupsPath, hold.Limits())
	if err != nil {
		return err
	}
	sb.group = g // the undo step that prepare has added removes the group
	sb.pod.cfg.Store.Fault("make cgroup of the sandbox")
	return sb.files.SetCgroup(g.Record())
}

// SandboxStatus never blocks. It is legal in every state.
func (p *Pod) SandboxStatus(id string) (SandboxStatus, error) {
	sb, err := p.findSandbox(id)
	if err != nil {
		return SandboxStatus{}, err
	}
	return sb.now(), nil
}

// WaitSandbox waits until the sandbox has stopped, or until ctx ends.
func (p *Pod) WaitSandbox(ctx context.Context, id string) (Exit, error) {
	sb, err := p.findSandbox(id)
	if err != nil {
		return Exit{}, err
	}
	if _, err := sb.until(ctx, SandboxState.stopped); err != nil {
		return Exit{}, fmt.Errorf("wait for sandbox %s: %w", id, err)
	}
	return sb.now().Exit, nil
}

// SandboxStats reads the statistics of the pod's cgroup.
func (p *Pod) SandboxStats(id string) (Stats, error) {
	sb, err := p.findSandbox(id)
	if err != nil {
		return Stats{}, err
	}
	if s := sb.now().State; s != SandboxReady {
		return Stats{}, fmt.Errorf("statistics of sandbox %s, which is %s: %w", id, s, errdefs.ErrFailedPrecondition)
	}
	group := sb.group
	if sb.config.CgroupParent != "" {
		if group, err = cgroup.Open(sb.config.CgroupParent, p.cfg.Cgroups); err != nil {
			return Stats{}, fmt.Errorf("sandbox %s: %w", id, err)
		}
	}
	counted, err := group.Stats()
	if err != nil {
		return Stats{}, fmt.Errorf("sandbox %s: %w", id, err)
	}
	return Stats{Stats: counted}, nil
}

// LinkSandbox makes missing links to the sandbox's files again.
func (p *Pod) LinkSandbox(id string) error {
	sb, err := p.findSandbox(id)
	if err != nil {
		return err
	}
	if sb.now().State != SandboxReady {
		return nil
	}
	if err := sb.files.Link(sb.config.onDisk()); err != nil {
		return fmt.Errorf("sandbox %s: %w", id, err)
	}
	return nil
}

func (p *Pod) findSandbox(id string) (*sandbox, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sb, ok := p.owner.(*sandbox)
	if !ok || sb.config.ID != id {
		return nil, fmt.Errorf("sandbox %s: %w", id, errdefs.ErrNotFound)
	}
	return sb, nil
}

// admit admits apps while the sandbox is ready.
func (sb *sandbox) admit(string) error {
	switch s := sb.current(); s {
	case SandboxReady:
		return nil
	case SandboxCanceling, SandboxStopping:
		return fmt.Errorf("its sandbox %s is being stopped: %w", sb.config.ID, errdefs.ErrFailedPrecondition)
	default:
		return fmt.Errorf("its sandbox %s is %s: %w", sb.config.ID, s, errdefs.ErrFailedPrecondition)
	}
}

func (sb *sandbox) outlivesApps() error {
	return fmt.Errorf("close pod: it is sandbox %s: %w", sb.pod.cfg.Key.Sandbox, errdefs.ErrFailedPrecondition)
}
