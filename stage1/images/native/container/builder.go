package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// builder makes an app's root, in the app's first process or, for a Builder, in a thread of the
// supervisor.
type builder struct {
	*config
	root     root
	open     []int // descriptors that are needed until the root is complete
	held     []heldMount
	asideDir int // directory in which mountAside mounts, if an entry needs it
	empty    int // the mount that covers masked directories, once it was made
	// dev is what the spec has mounted on /dev, or else the image's directory, or -1 before that is open. Devices,
	// links, the console and mounts below /dev are made in it: the path /dev may be a link of the image, which
	// leads into a volume when all mounts are made.
	dev int
}

func newBuilder(c *config) builder {
	b := builder{config: c, empty: -1, dev: -1}
	for _, m := range c.Mounts {
		if m.File != 0 {
			b.keep(m.File)
		}
		for _, h := range m.Cgroups {
			if h.File != 0 {
				b.keep(h.File)
			}
		}
	}
	return b
}

// keep leaves a descriptor open until release.
func (a *builder) keep(fd int) { a.open = append(a.open, fd) }

func (a *builder) release() {
	for _, fd := range a.open {
		unix.Close(fd)
	}
	a.open = nil
}

// Builder makes the root of an app whose first process is made by a plan of system calls
// (fork.First). It joins the namespaces of that process by a thread of this one, so it needs no
// program that is executed there.
type Builder struct {
	builder
	pid        int
	namespaces int // CLONE_NEW* flags of those to join
	pidfd      int // of the process
	procfs     int // the host's
}

// ErrOutside is the error of Build if only Init can make the root.
var ErrOutside = errors.New("the root cannot be made from outside")

// Builder returns a Builder for the process pid, which waits in its namespaces. namespaces are the
// flags of those that differ from this process's. procfs are what the process has handed over
// for First.Procfs. They may be closed when Builder returns, and p, too. The caller calls Build.
func (p *Prepared) Builder(pid int, pidfd *os.File, namespaces int, procfs []*os.File) (_ *Builder, err error) {
	c := *p.config
	c.Mounts = slices.Clone(c.Mounts)
	b := &Builder{builder: builder{config: &c, empty: -1, dev: -1}, pid: pid, namespaces: namespaces}
	defer func() {
		if err != nil {
			b.release()
		}
	}()
	for i := range c.Mounts {
		m := &c.Mounts[i]
		if m.newProcfs() {
			if len(procfs) == 0 {
				return nil, errors.New("the process has handed over too few procfs")
			}
			if m.File, err = b.copied(procfs[0]); err != nil {
				return nil, err
			}
			procfs = procfs[1:]
			continue
		}
		if err := b.copyOwn(p, &m.File); err != nil {
			return nil, err
		}
		m.Cgroups = slices.Clone(m.Cgroups)
		for i := range m.Cgroups {
			if err := b.copyOwn(p, &m.Cgroups[i].File); err != nil {
				return nil, err
			}
		}
	}
	if b.pidfd, err = b.copied(pidfd); err != nil {
		return nil, err
	}
	if b.procfs, err = unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open /proc: %w", err)
	}
	b.keep(b.procfs)
	return b, nil
}

// copied returns a descriptor of a file that stays open until release.
func (b *Builder) copied(f *os.File) (int, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("copy a descriptor: %w", err)
	}
	b.keep(fd)
	return fd, nil
}

// copyOwn replaces the number of one of p's Files by a descriptor of this process.
func (b *Builder) copyOwn(p *Prepared, number *int) (err error) {
	if *number != 0 {
		*number, err = b.copied(p.Files[*number-firstFile])
	}
	return err
}

// newProcfs reports whether a mount is a new procfs. Only a process of the app's PID namespace can
// open it.
func (m *mount) newProcfs() bool { return m.Type == "proc" && m.Flags&unix.MS_REMOUNT == 0 }

// Build makes the root. When it returns, the root is "/" for the process. An app with a device or
// network filesystem that does not answer can block it for any time.
func (b *Builder) Build() error {
	defer b.release()
	return proc.OnThread(b.make)
}

// make makes the root on a thread of its own.
func (b *Builder) make() error {
	return inOrder(
		b.join,
		b.setNames,
		b.bringUpLoopback,
		func() error { return writeSysctl(b.Sysctl) },
		b.buildRoot,
		b.enterRoot,
		b.hasEntered,
		func() error { b.makeCwd(); return nil },
		b.closeMounts,
		b.protect,
	)
}

// join moves this thread into the namespaces of the process.
func (b *Builder) join() error {
	var before, after unix.Stat_t
	err := inOrder(
		func() error { return unix.Stat("/", &before) },
		func() error { return unix.Unshare(unix.CLONE_FS) },
		// A thread keeps its PID namespace.
		func() error { return unix.Setns(b.pidfd, b.namespaces&^unix.CLONE_NEWPID) },
		func() error { return unix.Stat("/", &after) },
	)
	if err != nil {
		return fmt.Errorf("%w: join the namespaces of the process: %w", ErrOutside, err)
	}
	// The root of a thread that joins a mount namespace is that of the namespace.
	if before.Dev != after.Dev || before.Ino != after.Ino {
		return fmt.Errorf("%w: this process has another root than its mount namespace", ErrOutside)
	}
	unix.Umask(0)
	return nil
}

// hasEntered returns an error unless "/" of the process is this thread's: pivot_root(2) gives the new
// root to each process that had the old one.
func (b *Builder) hasEntered() error {
	fd, err := unix.Openat(b.procfs, strconv.Itoa(b.pid)+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("look at the root of process %d: %w", b.pid, err)
	}
	defer unix.Close(fd)
	entered, err := b.root.is(fd)
	if err != nil {
		return fmt.Errorf("look at the root of process %d: %w", b.pid, err)
	}
	if !entered {
		return fmt.Errorf("%w: the process has kept its root", ErrOutside)
	}
	return nil
}
