package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork/nofile"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/supervisor"
)

const (
	// tree is what the containers' own root is, from the pod's directory: this image,
	// which systemd-nspawn finds to be a system because it has /usr.
	tree = "stage1/rootfs"
	// appRoot is where the app's root is attached in it.
	appRoot = "/opt/stage2"
)

// enclosure makes containers by systemd-nspawn. It is the supervisor's Enclosure.
type enclosure struct {
	pod  string
	made atomic.Uint32 // so many, for names
}

var _ supervisor.Enclosure = (*enclosure)(nil)

func newEnclosure(pod string) *enclosure { return &enclosure{pod: pod} }

// Root implements supervisor.Enclosure.
func (e *enclosure) Root() string { return appRoot }

// Enclose implements supervisor.Enclosure.
func (e *enclosure) Enclose(p *fork.Process, rootfs string, spec *specs.Spec) (*supervisor.Enclosed, error) {
	if err := refuse(p, spec); err != nil {
		return nil, err
	}
	m := &making{machine: fmt.Sprintf("rkt-%s-%d", e.pod, e.made.Add(1))}
	if err := e.open(m, p, rootfs); err != nil {
		m.started()
		m.close()
		return nil, err
	}
	return &supervisor.Enclosed{Process: m.process(p), Words: m.words, Started: m.started, Close: m.close}, nil
}

// refuse returns an error for namespaces that systemd-nspawn cannot make or join.
func refuse(p *fork.Process, spec *specs.Spec) error {
	for i, n := range spec.Linux.Namespaces {
		switch {
		case n.Type == specs.UserNamespace || n.Type == specs.TimeNamespace:
			return supervisor.Unsupported("linux.namespaces[%d].type: %q is not supported", i, n.Type)
		case n.Type == specs.PIDNamespace && n.Path != "":
			return supervisor.Unsupported("linux.namespaces[%d].path: joining a PID namespace is not supported", i)
		}
	}
	if strings.HasSuffix(spec.Linux.RootfsPropagation, "shared") {
		return supervisor.Unsupported("linux.rootfsPropagation: %q is not supported: a container's mounts do not reach the host", spec.Linux.RootfsPropagation)
	}
	return nil
}

// making is a container that is being made.
type making struct {
	machine string
	log     *os.File // what systemd-nspawn says
	null    *os.File
	exe     *os.File
	root    *os.File // a copy of the app's root, mounted nowhere yet
	cgroups *os.File // the cgroup namespace to be in
	group   *group
	joins   []fork.Join
}

// open opens what a container is made of.
func (e *enclosure) open(m *making, p *fork.Process, rootfs string) (err error) {
	if m.exe, err = os.OpenFile("/proc/self/exe", unix.O_PATH, 0); err != nil {
		return err
	}
	if m.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return err
	}
	fd, err := unix.MemfdCreate("systemd-nspawn", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make a file for the words of systemd-nspawn: %w", err)
	}
	m.log = os.NewFile(uintptr(fd), "words of systemd-nspawn")
	if m.root, err = copyTree(rootfs); err != nil {
		return fmt.Errorf("open the app's root %s: %w", rootfs, err)
	}
	for _, j := range p.Joins {
		if j.Flags == unix.CLONE_NEWCGROUP { // init's, in a container that has one already
			m.cgroups, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", j.File.Fd()), os.O_RDONLY, 0)
			if err != nil {
				return fmt.Errorf("open %s: %w", j.What, err)
			}
			continue
		}
		m.joins = append(m.joins, j)
	}
	if m.cgroups == nil {
		if m.cgroups, err = os.Open("/proc/self/ns/cgroup"); err != nil {
			return err
		}
	}
	m.group, err = newGroup(m.machine)
	return err
}

// copyTree copies a mount. Nothing that is mounted in the copy reaches the host.
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

// process returns what becomes systemd-nspawn. Its descriptors from 3 on are passed
// into the container: what init of native has there, and then what arrive takes.
func (m *making) process(p *fork.Process) *fork.Process {
	stdio, rest := p.Files[:3], p.Files[3:]
	files := append([]*os.File{m.null, m.log, m.log}, rest...)
	files = append(files, m.root, m.cgroups)
	files = append(files, stdio...)
	return &fork.Process{
		Exe:    m.exe,
		Args:   append([]string{launcherName}, m.arguments(p)...),
		Env:    m.environment(p, len(files)-3),
		Files:  files,
		Joins:  m.joins,
		Cgroup: m.group.dir(),
	}
}

// arguments are those of systemd-nspawn. What it would do to a system that it boots,
// and what needs a systemd on the host, is turned off.
func (m *making) arguments(p *fork.Process) []string {
	args := []string{
		"--quiet", "--settings=no", "--register=no", "--keep-unit", "--console=pipe",
		"--directory=" + tree, "--read-only", "--machine=" + m.machine,
		"--link-journal=no", "--resolv-conf=off", "--timezone=off",
		// Init takes away what the app is not to have. It has to mount first.
		"--capability=all",
	}
	if p.New&unix.CLONE_NEWNET != 0 {
		args = append(args, "--private-network")
	}
	// Without a wish for one, a new UTS namespace has the host's name, as with clone(2).
	// systemd-nspawn does not take every name that there is, so arrive sets it.
	if name, err := os.Hostname(); err == nil && p.New&unix.CLONE_NEWUTS != 0 {
		args = append(args, "--setenv="+hostnameVariable+"="+name)
	}
	args = append(args, limits()...)
	return append(args, "/usr/bin/"+initName)
}

// limits keep the supervisor's limits in the container, whose own would be those that
// the kernel gives to the first process of a machine.
func limits() []string {
	var args []string
	for i, name := range []string{
		"CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE",
		"MEMLOCK", "AS", "LOCKS", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO", "RTTIME",
	} {
		var l unix.Rlimit
		if unix.Getrlimit(i, &l) != nil {
			continue
		}
		if i == unix.RLIMIT_NOFILE {
			l.Cur, l.Max = nofile.Original[0], nofile.Original[1]
		}
		args = append(args, "--rlimit="+name+"="+limit(l.Cur)+":"+limit(l.Max))
	}
	return args
}

func limit(n uint64) string {
	if n == unix.RLIM_INFINITY {
		return "infinity"
	}
	return strconv.FormatUint(n, 10)
}

// environment is that of systemd-nspawn.
func (m *making) environment(p *fork.Process, passed int) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"),
		"LISTEN_FDS=" + strconv.Itoa(passed), // the launcher adds LISTEN_PID
		"SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_COLOR=0",
		"SYSTEMD_SECCOMP=0", // init has the app's filter
		"SYSTEMD_NSPAWN_LOCK=0",
		"SYSTEMD_NSPAWN_TMPFS_TMP=0",
		"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=" + m.group.unified(),
	}
	for flag, variable := range map[uintptr]string{unix.CLONE_NEWPID: "PID", unix.CLONE_NEWIPC: "IPC", unix.CLONE_NEWUTS: "UTS"} {
		if p.New&flag == 0 {
			env = append(env, "SYSTEMD_NSPAWN_SHARE_NS_"+variable+"=1")
		}
	}
	return env
}

// started closes what the process has its copies of.
func (m *making) started() {
	for _, f := range []*os.File{m.exe, m.null, m.root, m.cgroups} {
		f.Close()
	}
	m.group.closeDir()
}

// close removes what systemd-nspawn has made outside of the container.
func (m *making) close() {
	m.log.Close()
	m.group.remove()
	_ = os.Remove(filepath.Join(propagated, m.machine))
}

// words returns what systemd-nspawn has said.
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
