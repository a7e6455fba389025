package fork

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// First makes a Program the first process of an app, whose root another process makes at the same
// time. The process does what only it can do, in these namespaces and cgroups, and waits for its
// parent (Begun.Await, Begun.Go) twice: until it may enter its root, which is "/" in its mount
// namespace by then, and when nothing is left but its umask, its limits, its filter and the exec.
type First struct {
	// CgroupNamespace makes a cgroup namespace.
	CgroupNamespace bool
	// Procfs is how many procfs of its PID namespace the process opens (fsopen(2)) and hands to its
	// parent, which configures and mounts them.
	Procfs int
}

// room returns how much of a sheet the plan takes at most.
func (f *First) room() int { return 256 + int(unsafe.Sizeof(making{})) }

// Await returns when the process waits for Go, with the procfs that it has handed over.
func (b *Begun) Await() (opened []*os.File, err error) {
	for {
		r, file, err := b.b.receive()
		if file != nil {
			opened = append(opened, file)
		}
		switch {
		case err == nil && r == nil:
			err = ErrEnded
		case err == nil && r.step == waiting:
			return opened, nil
		case err == nil && r.step != procfs:
			err = fmt.Errorf("a new process that should wait is %s", r.step)
		}
		if err != nil {
			proc.CloseFiles(opened...)
			return nil, err
		}
	}
}

// Go lets a process go on that waits. If the process has ended, the next call reports that.
func (b *Begun) Go() { _, _ = b.b.words.Write([]byte{1}) }

// making is a First prepared for the child.
type making struct {
	cgroups bool
	procfs  int

	proc, root, null *byte
	nullOpen         unix.OpenHow
}

// layFirst prepares a First on a sheet.
func (b *becoming) layFirst(f *First, s *sheet) (err error) {
	m := &carve[making](s, 1)[0]
	b.first = m
	m.cgroups, m.procfs = f.CgroupNamespace, f.Procfs
	for _, t := range []struct {
		place **byte
		text  string
	}{{&m.proc, "proc"}, {&m.root, "/"}, {&m.null, "/dev/null"}} {
		if *t.place, err = s.text(t.text); err != nil {
			return err
		}
	}
	m.nullOpen = unix.OpenHow{
		Flags:   unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_MAGICLINKS,
	}
	return nil
}

// layMessage prepares the message of hand.
func (b *becoming) layMessage(l *plan) {
	b.part.Base = (*byte)(unsafe.Pointer(&l.words))
	b.part.SetLen(reportSize)
	b.rights.Level, b.rights.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
	b.rights.SetLen(unix.CmsgLen(4))
	b.message.Iov = &b.part
	b.message.SetIovlen(1)
	b.message.Control = (*byte)(unsafe.Pointer(&b.rights))
	b.message.SetControllen(unix.CmsgSpace(4))
}

// hand sends a descriptor to the parent.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) hand(as step, fd uintptr, failed step) {
	b := l.program
	l.words, b.rights.file = report{step: as}, int32(fd)
	l.must(failed, unix.SYS_SENDMSG, uintptr(l.report), uintptr(unsafe.Pointer(&b.message)), unix.MSG_NOSIGNAL)
}

// pause waits until the parent lets this process go on.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) pause() {
	l.tell(waiting, 0, 0)
	l.await()
}

// makeFirst does what the parent's thread cannot do, and waits until the root is made. The
// descriptors are closed together with all others before the process enters the root.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) makeFirst(m *making) {
	if m.cgroups {
		l.must(stepCgroupNamespace, unix.SYS_UNSHARE, unix.CLONE_NEWCGROUP, 0, 0)
	}
	for range m.procfs {
		fs := l.must(stepProcfs, unix.SYS_FSOPEN, uintptr(unsafe.Pointer(m.proc)), unix.FSOPEN_CLOEXEC, 0)
		l.hand(procfs, fs, stepProcfs)
	}
	l.pause()
}

// enterRoot enters the root that the parent has made, and replaces the host's null device in the
// process's files by the app's own. If the app's /dev/null is another file, the host's stays.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) enterRoot(b *becoming) {
	m := b.first
	l.must(stepRoot, unix.SYS_CHDIR, uintptr(unsafe.Pointer(m.root)), 0, 0)
	own := ^uintptr(0)
	for fd := range uintptr(l.kept) {
		_, _, errno := syscall.RawSyscall6(unix.SYS_FSTAT, fd, uintptr(unsafe.Pointer(&b.stat)), 0, 0, 0, 0)
		if errno != 0 || !isNull(&b.stat) {
			continue
		}
		if own == ^uintptr(0) {
			if own = l.openNull(b); own == ^uintptr(0) {
				return
			}
		}
		l.must(stepDescriptors, unix.SYS_DUP3, own, fd, 0)
	}
	if own != ^uintptr(0) {
		syscall.RawSyscall6(unix.SYS_CLOSE, own, 0, 0, 0, 0, 0)
	}
}

// openNull opens the app's null device. It looks at the file before it opens it, because the open of
// another device can have an effect. If there is another file, openNull returns ^0.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) openNull(b *becoming) uintptr {
	m := b.first
	_, _, errno := syscall.RawSyscall6(unix.SYS_NEWFSTATAT, atCWD, uintptr(unsafe.Pointer(m.null)),
		uintptr(unsafe.Pointer(&b.stat)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	if errno != 0 || !isNull(&b.stat) {
		return ^uintptr(0)
	}
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, atCWD, uintptr(unsafe.Pointer(m.null)),
		uintptr(unsafe.Pointer(&m.nullOpen)), unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		return ^uintptr(0)
	}
	_, _, errno = syscall.RawSyscall6(unix.SYS_FSTAT, fd, uintptr(unsafe.Pointer(&b.stat)), 0, 0, 0, 0)
	if errno != 0 || !isNull(&b.stat) { // another container has replaced it meanwhile
		syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
		return ^uintptr(0)
	}
	return fd
}

// isNull reports whether a file is the null device.
//
//go:nosplit
//go:norace
func isNull(st *unix.Stat_t) bool {
	const null = 1<<8 | 3
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == null
}
