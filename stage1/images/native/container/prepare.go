package container

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// AppRequest asks for the first process of an app.
type AppRequest struct {
	Request abi.Request
	Spec    *specs.Spec
	// CgroupFiles are files by which the process enters its cgroups, open for writing. Tasks
	// is the number of such files that it opens itself (fork.Process.Tasks). There are none of
	// either if the process is cloned into its cgroup of version 2.
	CgroupFiles []*os.File
	Tasks       int
	Filters     *Filters // may be nil
}

// ExecRequest asks for a further process in an app.
type ExecRequest struct {
	Request abi.Request
	Process *specs.Process
	App     *specs.Spec // the spec with which the app was made
	Tasks   int         // as in AppRequest
	// JoinsUserNamespace is set if the app's user namespace is not the host's.
	JoinsUserNamespace bool
	// Chroot is the app's root, open, if the app has no mount namespace.
	Chroot  *os.File
	Filters *Filters // may be nil
}

// Prepared is everything that Init needs, besides its namespaces.
type Prepared struct {
	Files []*os.File // for fd 5 and above, in this order

	own     []*os.File // the files that Close closes
	config  *config
	process process
}

// Close closes the files that Prepare has opened, and forgets everything that Init needs. The
// caller closes CgroupFiles of the request.
func (p *Prepared) Close() {
	for _, f := range p.own {
		f.Close()
	}
	p.own, p.Files, p.config = nil, nil, nil
}

// Config returns the plan of Init, for fd 4.
func (p *Prepared) Config() ([]byte, error) {
	b, err := encodeConfig(p.config)
	if err != nil {
		return nil, fmt.Errorf("encode the plan of the process: %w", err)
	}
	return b, nil
}

// firstFile is the descriptor of Prepared.Files[0] in the new process.
const firstFile = 5

// lend adds a file that the caller closes, and returns its descriptor in the new process.
func (p *Prepared) lend(f *os.File) int {
	p.Files = append(p.Files, f)
	return firstFile + len(p.Files) - 1
}

// give is lend for a file that Close closes.
func (p *Prepared) give(f *os.File) int {
	p.own = append(p.own, f)
	return p.lend(f)
}

// finish completes the plan when Files are complete. tasks is the number of files that the
// process opens itself, and that follow Files.
func (p *Prepared) finish(c *config, tasks int) *Prepared {
	for i := range tasks {
		c.Cgroups = append(c.Cgroups, fork.FirstTask(firstFile+len(p.Files))+i)
	}
	p.config, p.process = c, c.Process
	return p
}

// PrepareApp validates an app's spec and opens the files that only a process outside of
// the app's namespaces can open. The caller closes the result when the new process has
// its own copies.
func PrepareApp(r AppRequest) (_ *Prepared, err error) {
	if err := validate(r.Spec); err != nil {
		return nil, err
	}
	if !path.IsAbs(r.Request.Rootfs) {
		return nil, fmt.Errorf("rootfs %q is not absolute", r.Request.Rootfs)
	}
	ns, err := parseNamespaces(r.Spec.Linux)
	if err != nil {
		return nil, err
	}
	p := &Prepared{}
	defer func() {
		if err != nil {
			p.Close()
			err = outermost(err)
		}
	}()
	c := &config{
		UserNamespace:   ns.private(specs.UserNamespace),
		CgroupNamespace: ns.isNew(specs.CgroupNamespace),
		Loopback:        ns.isNew(specs.NetworkNamespace),
		NetDevices:      len(r.Spec.Linux.NetDevices) > 0,
		RuntimeHooks:    r.Spec.Hooks != nil && len(r.Spec.Hooks.Prestart)+len(r.Spec.Hooks.CreateRuntime) > 0,
		Masked:          r.Spec.Linux.MaskedPaths,
		Readonly:        r.Spec.Linux.ReadonlyPaths,
		Hostname:        r.Spec.Hostname,
		Domainname:      r.Spec.Domainname,
		Hooks:           appHooks(r.Spec, &r.Request),
	}
	if c.Sysctl, err = parseSysctl(r.Spec, ns); err != nil {
		return nil, err
	}
	for _, f := range r.CgroupFiles {
		c.Cgroups = append(c.Cgroups, p.lend(f))
	}
	if err := p.common(c, &r.Request, r.Spec.Process, r.Spec, r.Filters); err != nil {
		return nil, err
	}
	if err := p.filesystem(c, r.Spec, &r.Request); err != nil {
		return nil, err
	}
	return p.finish(c, r.Tasks), nil
}

// PrepareExec does for an exec what PrepareApp does for an app.
func PrepareExec(r ExecRequest) (_ *Prepared, err error) {
	if r.Process == nil || r.App == nil || r.App.Linux == nil {
		return nil, errors.New("an exec needs a process and its app's spec")
	}
	if err := refuseProcess(r.Process); err != nil {
		return nil, err
	}
	defer func() { err = outermost(err) }()
	p := &Prepared{}
	c := &config{Exec: true, UserNamespace: r.JoinsUserNamespace}
	if r.Chroot != nil {
		c.Chroot = p.lend(r.Chroot)
	}
	if r.Chroot != nil && (r.Process.Terminal || r.Request.Terminal) {
		return nil, refuse("process.terminal", "not supported without a mount namespace, because it needs mounts")
	}
	if err := p.common(c, &r.Request, likeApp(r.Process, r.App.Process), r.App, r.Filters); err != nil {
		return nil, err
	}
	if err := c.Process.affinity(r.Process, r.App.Process); err != nil {
		return nil, err
	}
	return p.finish(c, r.Tasks), nil
}

// likeApp returns the process of an exec with what it leaves to its app, as runc has it: capabilities, the OOM score, the umask, the
// scheduling policy, the I/O priority and security labels. An exec that is to have no capabilities says so by an empty object.
func likeApp(exec, app *specs.Process) *specs.Process {
	p := *exec
	if app == nil {
		return &p
	}
	if p.Capabilities == nil {
		p.Capabilities = app.Capabilities
	}
	if p.OOMScoreAdj == nil {
		p.OOMScoreAdj = app.OOMScoreAdj
	}
	if p.User.Umask == nil {
		p.User.Umask = app.User.Umask
	}
	p.Scheduler, p.IOPriority = cmp.Or(p.Scheduler, app.Scheduler), cmp.Or(p.IOPriority, app.IOPriority)
	p.ApparmorProfile, p.SelinuxLabel = cmp.Or(p.ApparmorProfile, app.ApparmorProfile), cmp.Or(p.SelinuxLabel, app.SelinuxLabel)
	return &p
}

// common fills in the parts that apps and execs share.
func (p *Prepared) common(c *config, r *abi.Request, proc *specs.Process, app *specs.Spec, filters *Filters) error {
	options := abi.Options{}
	if r.Options != nil {
		options = *r.Options
	}
	if !options.NoNewKeyring {
		c.Keyring = "_ses." + r.Container
	}
	if c.Terminal = r.Terminal || proc.Terminal; c.Terminal {
		c.ConsoleSize = proc.ConsoleSize
	}
	var err error
	if c.Personality, err = parsePersonality(app.Linux.Personality); err != nil {
		return err
	}
	if c.MemoryPolicy, err = parseMemoryPolicy(app.Linux.MemoryPolicy); err != nil {
		return err
	}
	if c.Process, err = parseProcess(proc); err != nil {
		return err
	}
	if err := c.Process.label(proc); err != nil {
		return err
	}
	if err := checkMountLabel(app.Linux.MountLabel); err != nil {
		return err
	}
	c.MountLabel = app.Linux.MountLabel
	if c.Seccomp, c.SeccompFlags, err = filters.compile(app.Linux.Seccomp); err != nil {
		return err
	}
	return checkListener(app.Linux.Seccomp, c.SeccompFlags)
}

// appHooks returns the hooks that Init runs itself, or nil.
func appHooks(spec *specs.Spec, r *abi.Request) *hooks {
	h := spec.Hooks
	if h == nil || len(h.CreateContainer)+len(h.StartContainer) == 0 {
		return nil
	}
	return &hooks{
		CreateContainer: h.CreateContainer,
		StartContainer:  h.StartContainer,
		State:           stateOf(spec, r.Container, r.Bundle),
	}
}
