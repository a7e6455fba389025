package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/supervisor"
)

// attachedAt is the path at which the app's root is attached: in the root of a container,
// or in the host's root for an app for which wantsHost returns true.
const attachedAt = "/opt/stage2"

// spawner makes containers by systemd-nspawn. It is the Spawner of the supervisor.
type spawner struct {
	pod  string
	made atomic.Uint32 // number of containers so far, for names
}

var _ supervisor.Spawner = (*spawner)(nil)

// Root implements supervisor.Spawner.
func (e *spawner) Root(r *abi.Request, spec *specs.Spec) (string, error) {
	if err := refuse(r, spec); err != nil {
		return "", err
	}
	if wantsHost(spec) {
		return r.Rootfs, nil
	}
	return attachedAt, nil
}

// wantsHost reports whether the container needs the host's files until it enters the app's
// root. It does if hooks are executed in the container's namespaces, or if mounts name
// directories of the host.
func wantsHost(spec *specs.Spec) bool {
	return spec.Hooks != nil && len(spec.Hooks.CreateContainer) > 0 ||
		slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool {
			return m.Type == "overlay" || m.Type != "bind" && filepath.IsAbs(m.Source)
		})
}

// Prepare implements supervisor.Spawner.
func (e *spawner) Prepare(p *fork.Process, r *abi.Request, spec *specs.Spec) (*supervisor.Spawn, error) {
	m := &making{machine: fmt.Sprintf("rkt-%s-%d", e.pod, e.made.Add(1))}
	tree := r.Rootfs
	if m.host = wantsHost(spec); m.host {
		tree = "/"
	}
	if err := m.open(p, tree); err != nil {
		m.started()
		m.close()
		return nil, err
	}
	return &supervisor.Spawn{Process: m.process(p), Words: m.words, Started: m.started, Close: m.close}, nil
}

// refuse returns an error if an app asks for a user or time namespace, which systemd-nspawn
// cannot make, or for noNewKeyring, because systemd-nspawn always makes a session keyring.
func refuse(r *abi.Request, spec *specs.Spec) error {
	if r.Options != nil && r.Options.NoNewKeyring {
		return serve.Unsupported("options.noNewKeyring is not supported: a container of systemd-nspawn's has a session keyring of its own")
	}
	if !slices.ContainsFunc(spec.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.MountNamespace }) {
		return serve.Unsupported("linux.namespaces: a container of systemd-nspawn's has a mount namespace of its own")
	}
	for i, n := range spec.Linux.Namespaces {
		if n.Type == specs.UserNamespace || n.Type == specs.TimeNamespace {
			return serve.Unsupported("linux.namespaces[%d].type: %q is not supported", i, n.Type)
		}
		if n.Type == specs.MountNamespace && n.Path != "" {
			return serve.Unsupported("linux.namespaces[%d].path: a container of systemd-nspawn's has a new mount namespace", i)
		}
	}
	return nil
}

// making is a container that is being made.
type making struct {
	machine string
	// image is the containers' own root: the tree of this program, which systemd-nspawn
	// accepts as a system because it has /usr.
	image   string
	log     *os.File // the output of systemd-nspawn
	null    *os.File
	exe     *os.File
	root    *os.File // a detached copy of the app's root or of the host's
	host    bool     // root is the host's
	cgroups *os.File // the cgroup namespace for the app
	pids    *os.File // the PID namespace to join, if it is not the host's
	group   *group
	joins   []fork.Join
}

// open opens the files from which a container is made.
func (m *making) open(p *fork.Process, tree string) (err error) {
	if m.exe, err = os.OpenFile("/proc/self/exe", unix.O_PATH, 0); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	m.image = filepath.Dir(program)
	if m.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	if m.log, err = proc.Memory("systemd-nspawn", nil); err != nil {
		return fmt.Errorf("keep the words of systemd-nspawn: %w", err)
	}
	if m.root, err = copyTree(tree); err != nil {
		return fmt.Errorf("copy what is mounted at %s: %w", tree, err)
	}
	if err = m.share(p.Joins); err != nil {
		return err
	}
	m.group, err = newGroup(m.machine)
	return err
}

// share divides the namespaces to join into two groups. systemd-nspawn is started in the
// namespaces of the first group, and its container inherits them. arrive joins the others
// inside the container.
func (m *making) share(joins []fork.Join) (err error) {
	for _, j := range joins {
		switch j.Flags {
		case unix.CLONE_NEWCGROUP:
			m.cgroups, err = reopen(j)
		case unix.CLONE_NEWPID:
			if m.pids, err = reopen(j); err == nil && isOwn(m.pids, "pid") {
				err = m.pids.Close()
				m.pids = nil
			}
		default:
			m.joins = append(m.joins, j)
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", j.What, err)
		}
	}
	if m.cgroups == nil {
		m.cgroups, err = os.Open("/proc/self/ns/cgroup")
	}
	return err
}

// reopen opens a namespace again, because the caller closes its own file.
func reopen(j fork.Join) (*os.File, error) {
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", j.File.Fd()), os.O_RDONLY, 0)
}

// isOwn reports whether a namespace is this process's, by its file in /proc/PID/ns.
func isOwn(ns *os.File, file string) bool {
	theirs, err := ns.Stat()
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/self/ns/" + file)
	return err == nil && os.SameFile(ours, theirs)
}

// copyTree copies a mount. Mounts in the copy do not propagate to the host.
func copyTree(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	slave := unix.MountAttr{Propagation: unix.MS_SLAVE}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &slave); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// process returns the process that becomes systemd-nspawn. Its descriptors from 3 on are
// passed into the container: first those for native's init, then those for arrive.
func (m *making) process(p *fork.Process) *fork.Process {
	stdio, rest := p.Files[:3], p.Files[3:]
	files := append([]*os.File{m.null, m.log, m.log}, rest...)
	files = append(files, m.root, m.cgroups)
	for _, leave := range []*os.File{m.group.procs, m.group.namedProcs} {
		if leave == nil {
			leave = m.null
		}
		files = append(files, leave)
	}
	files = append(files, stdio...)
	if m.pids != nil {
		files = append(files, m.pids)
	}
	return &fork.Process{
		Exe:    m.exe,
		Args:   append([]string{nspawnName}, m.arguments(p)...),
		Env:    m.environment(p, len(files)-3),
		Files:  files,
		Joins:  m.joins,
		Cgroup: m.group.file,
	}
}

// started closes the files of which the process has copies.
func (m *making) started() {
	for _, f := range []*os.File{m.exe, m.null, m.root, m.cgroups, m.pids} {
		f.Close()
	}
	m.group.close()
}

// close removes the files that systemd-nspawn has made outside of the container.
func (m *making) close() {
	m.log.Close()
	m.group.remove()
	_ = os.Remove(filepath.Join(propagated, m.machine))
}

// words returns the output of systemd-nspawn.
func (m *making) words() string {
	if _, err := m.log.Seek(0, io.SeekStart); err != nil {
		return err.Error()
	}
	text, err := io.ReadAll(io.LimitReader(m.log, 4096))
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(text)), "\n"), "; ")
}
