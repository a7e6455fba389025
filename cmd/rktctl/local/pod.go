package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
)

// Names in a pod's cgroup that no app can have: names of apps do not begin with an underscore.
const (
	holderCgroup = "_holder"
	serverCgroup = "_server"
)

// Limits of the removal of a pod, which no deadline of a client bounds.
const (
	removeLimit  = 90 * time.Second // of the services' calls
	cgroupsLimit = 10 * time.Second // until the server, which has answered, has ended
)

// PodConfig is a request for a pod.
type PodConfig struct {
	Stage1   string // its name; empty: the configuration decides
	Hostname string // empty: the beginning of the UUID
	Network  string // NetworkNone, NetworkHost, or the name of a network of CNI
	// Apps are added to the pod before any command can see it.
	Apps []AppConfig
	// Injectable lets commands add apps to the pod, and remove apps.
	Injectable bool
	// EndsWithApps ends the pod when it has apps and all of them have ended. Their states and exits
	// can be read until the pod is removed.
	EndsWithApps bool
}

// Pod is a local pod as it was when it was opened. Its methods read what has changed since.
type Pod struct {
	store  *Store
	uuid   string
	record podRecord
}

// UUID returns the pod's UUID.
func (p *Pod) UUID() string { return p.uuid }

func (p *Pod) path(elem ...string) string {
	return p.store.path(append([]string{p.uuid}, elem...)...)
}

// Create makes an empty pod and starts it. If it fails, nothing of the pod remains. If it is
// killed, the next Create removes what is left.
func (s *Store) Create(ctx context.Context, c PodConfig) (_ *Pod, err error) {
	c.Network = cmp.Or(c.Network, s.Network, NetworkNone)
	if c.Network != NetworkNone && c.Network != NetworkHost {
		if _, err := s.loadNetwork(c.Network); err != nil {
			return nil, err
		}
	}
	if err := s.make(); err != nil {
		return nil, err
	}
	_ = s.sweep(ctx) // a pod that cannot be removed keeps no other from being made; list shows it
	p, lock, err := s.claim(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	p.record = podRecord{
		Version: recordVersion, State: podCreating, Created: time.Now(), Stage1: c.Stage1, Address: addressOf(p.uuid),
		Cgroup: filepath.Join(s.CgroupParent, p.uuid), Network: c.Network, Injectable: c.Injectable, EndsWithApps: c.EndsWithApps,
	}
	if c.Hostname == "" && c.Network != NetworkHost {
		c.Hostname = "rkt-" + p.uuid
	}
	s.fault("mkdir pod")
	defer func() {
		if err != nil {
			err = errors.Join(err, p.remove(context.WithoutCancel(ctx)))
		}
	}()
	if err := p.fill(c); err != nil {
		return nil, err
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	for _, app := range c.Apps {
		if err := p.add(ctx, app, podCreating); err != nil {
			return nil, err
		}
	}
	p.record.State = podReady
	if err := p.write(); err != nil {
		return nil, err
	}
	s.fault("ready")
	return p, nil
}

// claimTries bounds how often claim makes a directory.
const claimTries = 10

// claim makes the directory of a new pod and locks it. Before it is locked, a sweep of another
// command may take it for one that was left behind, and remove it. Then claim makes another.
func (s *Store) claim(ctx context.Context) (*Pod, *os.File, error) {
	for range claimTries {
		p := &Pod{store: s, uuid: newUUID()}
		if err := os.Mkdir(p.path(), dirMode); err != nil {
			return nil, nil, err
		}
		if l, err := lock(ctx, p.path(), true); l != nil || err != nil {
			return p, l, err
		}
	}
	return nil, nil, fmt.Errorf("make a pod: other commands have removed its directory %d times: %w", claimTries, errdefs.ErrUnavailable)
}

func (p *Pod) write() error { return writeRecord(p.path(podFile), p.record) }

// fill writes the files that the pod's server needs.
func (p *Pod) fill(c PodConfig) error {
	if err := p.write(); err != nil {
		return err
	}
	for _, dir := range []string{appsDir, logsDir, execsDir} {
		if err := os.Mkdir(p.path(dir), dirMode); err != nil {
			return err
		}
	}
	if err := writeRecord(p.path("config.json"), p.sandboxSpec(c)); err != nil {
		return err
	}
	// The server opens the file `log` of its bundle; containerd makes a fifo there.
	if err := os.WriteFile(p.path("log"), nil, 0o600); err != nil {
		return err
	}
	if err := writeAddress(p.path(), p.record.Address); err != nil {
		return err
	}
	p.store.fault("fill pod")
	return cgroup.MakePlain(filepath.Join(p.record.Cgroup, serverCgroup))
}

// sandboxSpec describes the pod for CreateSandbox, which takes only the fields that concern a
// whole pod.
func (p *Pod) sandboxSpec(c PodConfig) *specs.Spec {
	namespaces := []specs.LinuxNamespace{{Type: specs.IPCNamespace}}
	if c.Network != NetworkHost {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.UTSNamespace}, specs.LinuxNamespace{Type: specs.NetworkNamespace})
	}
	annotations := map[string]string{}
	if c.EndsWithApps {
		annotations[sandbox.EndsWithApps] = "true"
	}
	return &specs.Spec{
		Version:     specs.Version,
		Annotations: annotations,
		Hostname:    c.Hostname,
		Linux:       &specs.Linux{Namespaces: namespaces, CgroupsPath: filepath.Join(p.record.Cgroup, holderCgroup)},
	}
}

// start starts the server, and then the sandbox.
func (p *Pod) start(ctx context.Context) error {
	if err := p.store.startServer(ctx, p.path(), p.uuid, p.record.Stage1, filepath.Join(p.record.Cgroup, serverCgroup)); err != nil {
		return err
	}
	p.store.fault("start server")
	create := &sandbox.CreateSandboxRequest{SandboxId: p.uuid, BundlePath: p.path()}
	if p.usesCNI() {
		var err error
		if create.NetnsPath, err = p.connect(ctx); err != nil {
			return err
		}
	}
	server, err := dial(ctx, p.record.Address)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.uuid, err)
	}
	defer server.close()
	if err := server.sandbox(ctx, "CreateSandbox", create, &sandbox.CreateSandboxResponse{}); err != nil {
		return err
	}
	p.store.fault("create sandbox")
	var started sandbox.StartSandboxResponse
	if err := server.sandbox(ctx, "StartSandbox", &sandbox.StartSandboxRequest{SandboxId: p.uuid}, &started); err != nil {
		return err
	}
	p.record.Holder = int(started.Pid)
	p.store.fault("start sandbox")
	return p.write()
}

// server connects to the pod's server.
func (p *Pod) server(ctx context.Context) (*server, error) {
	s, err := dial(ctx, p.record.Address)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", p.uuid, err)
	}
	return s, nil
}

// is returns an error if the pod is in another state than this one.
func (p *Pod) is(state podState) error {
	now, err := p.store.open(p.uuid)
	if err != nil {
		return err
	}
	if now.record.State != state {
		return fmt.Errorf("pod %s is %s: %w", p.uuid, now.record.State, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// Remove stops the pod's apps and removes everything of the pod. Without force it returns
// errdefs.ErrFailedPrecondition if an app is running. It can be repeated until it has
// succeeded.
func (p *Pod) Remove(ctx context.Context, force bool) error {
	lock, err := lock(ctx, p.path(), true)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.uuid, err)
	}
	if lock == nil {
		return nil // another command has removed it
	}
	defer lock.Close()
	if !force {
		all, err := p.List(ctx)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(all, func(a AppStatus) bool { return a.State == Running || a.State == Stopping }); i >= 0 {
			return fmt.Errorf("pod %s: its app %s is %s: stop it first, or use --force: %w", p.uuid, all[i].Name, all[i].State, errdefs.ErrFailedPrecondition)
		}
	}
	return p.remove(ctx)
}

// remove removes the pod, at whatever step its creation or an earlier removal was interrupted.
// The caller has the pod's lock.
func (p *Pod) remove(ctx context.Context) error {
	p.record.State = podRemoving
	if p.record.Cgroup == "" {
		p.record.Cgroup = filepath.Join(p.store.CgroupParent, p.uuid)
	}
	if err := p.write(); err != nil {
		return err
	}
	p.store.fault("write removing")
	names, err := p.Names()
	if err != nil {
		return err
	}
	// From here on no app is added. Wait for commands that have begun before.
	var locks []*os.File
	defer func() {
		for _, l := range locks {
			l.Close()
		}
	}()
	for _, name := range names {
		l, err := lock(ctx, p.path(appsDir, name), true)
		if err != nil {
			return err
		}
		if l != nil {
			locks = append(locks, l)
		}
	}
	if err := p.shutDown(ctx, names); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.uuid, err)
	}
	p.store.fault("shut down")
	if err := p.disconnect(ctx); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, cgroupsLimit)
	defer cancel()
	if err := cgroup.RemoveEmpty(limit, p.record.Cgroup); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.uuid, err)
	}
	p.store.fault("remove cgroup")
	if err := removeAll(p.path()); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.uuid, err)
	}
	p.store.fault("remove pod")
	return nil
}

// shutDown ends the pod by its server, and does from disk what the server has not done.
func (p *Pod) shutDown(ctx context.Context, names []string) error {
	if err := p.askShutdown(ctx); err != nil {
		return err
	}
	p.store.fault("ask shutdown")
	var errs []error
	for _, name := range names {
		errs = append(errs, p.store.collect(ctx, p.path(appsDir, name), name))
	}
	return errors.Join(append(errs, p.store.collect(ctx, p.path(), p.uuid))...)
}

// askShutdown makes the server remove the pod and end. It is no error if there is no server.
func (p *Pod) askShutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, removeLimit)
	defer cancel()
	server, err := dial(ctx, p.record.Address)
	if errors.Is(err, errNoServer) {
		return nil
	}
	if err != nil {
		return err
	}
	defer server.close()
	err = server.sandbox(ctx, "ShutdownSandbox", &sandbox.ShutdownSandboxRequest{SandboxId: p.uuid}, &sandbox.ShutdownSandboxResponse{})
	if gone(err) {
		return nil
	}
	return err
}

// removeAll removes a directory. It first unmounts what is mounted below it, because a removal
// would follow a mount.
func removeAll(dir string) error {
	if err := disk.UnmountBelow(dir); err != nil {
		return err
	}
	return proc.RemoveAll(dir)
}
