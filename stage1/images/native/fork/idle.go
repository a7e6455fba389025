package fork

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Idle is what a process does that stands for one that is elsewhere: it waits, and then kills itself.
// Begun.Executed returns when it waits. It is this program, without its memory, and needs no execution.
// Nothing but SIGKILL ends it, and SIGSTOP stops it. It has a mount namespace of its own, and no capability.
type Idle struct {
	Name string // at most 15 bytes. The process has no command line
	// Root is a detached mount, which becomes the only mount of that namespace. If it
	// is nil, an empty directory does.
	//
	// Clients use the root of a process that they take for the container's: nerdctl cp writes below
	// /proc/PID/root. A change of the root alone would not be enough: links of the container lead out
	// of it with "..".
	Root *os.File
	// Release is the end of a pipe. The process kills itself when no process has the other end open.
	Release *os.File
	// Terminal becomes the controlling terminal, and Sizes, a pipe, gets a byte when the terminal's size
	// has changed. Both are nil without a terminal.
	Terminal, Sizes *os.File
}

// idling is an Idle prepared for the child.
type idling struct {
	first                          int // of the descriptors below: those between it and the report's are closed
	root, release, terminal, sizes int // descriptors, or -1

	name, place, slash, here, none, tmpfs, mode *byte

	every  uint64 // all signals
	winch  uint64 // SIGWINCH
	polled [2]unix.PollFd
	header unix.CapUserHeader
	rights [2]unix.CapUserData // none
	buf    [unsafe.Sizeof(unix.SignalfdSiginfo{})]byte
}

// room returns how much of a sheet the plan takes at most.
func (i *Idle) room() int {
	return int(unsafe.Sizeof(idling{})) + 512 + len(i.Name)
}

// layIdle prepares an Idle on a sheet.
func (l *plan) layIdle(i *Idle, s *sheet) (err error) {
	w := &carve[idling](s, 1)[0]
	l.idle = w
	w.header.Version = unix.LINUX_CAPABILITY_VERSION_3
	w.every, w.winch = ^uint64(0), 1<<(uint(unix.SIGWINCH)-1)
	for _, t := range []struct {
		place **byte
		text  string
	}{{&w.name, i.Name}, {&w.place, "/proc"}, {&w.slash, "/"}, {&w.here, "."}, {&w.none, ""}, {&w.tmpfs, "tmpfs"}, {&w.mode, "mode=555"}} {
		if *t.place, err = s.text(t.text); err != nil {
			return err
		}
	}
	w.first = len(l.files)
	for _, f := range []struct {
		at   *int
		file *os.File
	}{{&w.root, i.Root}, {&w.release, i.Release}, {&w.terminal, i.Terminal}, {&w.sizes, i.Sizes}} {
		if *f.at = -1; f.file != nil {
			*f.at = l.place(f.file)
		}
	}
	return nil
}

// wait carries an Idle out. It does not return.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) wait(w *idling) {
	l.enterCgroups()
	if between := l.report + 1; between < w.first { // files of cgroups
		l.must(stepDescriptors, unix.SYS_CLOSE_RANGE, uintptr(between), uintptr(w.first-1), 0)
	}
	l.must5(stepSignals, unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&w.every)), 0, 8, 0)
	l.onlyRoot(w)
	if w.terminal >= 0 {
		l.must(stepTerminal, unix.SYS_IOCTL, uintptr(w.terminal), unix.TIOCSCTTY, 0)
	}
	rawCall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(w.name)), 0, 0)
	w.polled[0] = unix.PollFd{Fd: int32(w.release), Events: unix.POLLIN}
	watched := uintptr(1)
	if w.sizes >= 0 {
		changes := l.must5(stepSignals, unix.SYS_SIGNALFD4, ^uintptr(0), uintptr(unsafe.Pointer(&w.winch)), 8, unix.SFD_NONBLOCK, 0)
		w.polled[1] = unix.PollFd{Fd: int32(changes), Events: unix.POLLIN}
		watched = 2
	}
	l.must(stepNoNewPrivileges, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	l.must(stepCapabilities, unix.SYS_CAPSET, uintptr(unsafe.Pointer(&w.header)), uintptr(unsafe.Pointer(&w.rights)), 0)
	l.hide()
	l.tell(executing, 0, 0)
	rawCall(unix.SYS_CLOSE, uintptr(l.report), 0, 0, 0)
	for w.polled[0].Revents == 0 {
		rawCall(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&w.polled)), watched, 0, 0)
		if w.polled[1].Revents != 0 {
			rawCall(unix.SYS_READ, uintptr(w.polled[1].Fd), uintptr(unsafe.Pointer(&w.buf)), unsafe.Sizeof(w.buf), 0)
			rawCall(unix.SYS_WRITE, uintptr(w.sizes), uintptr(unsafe.Pointer(&l.zero)), 1, 0)
		}
	}
	// If the parent was killed, the process that inherits this one takes its exit for the exit of what it
	// stands for.
	pid := rawCall(unix.SYS_GETPID, 0, 0, 0, 0)
	rawCall(unix.SYS_KILL, pid, uintptr(unix.SIGKILL), 0, 0)
	exit(1)
}

// onlyRoot makes the root the only mount of the process's mount namespace.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) onlyRoot(w *idling) {
	place, here := uintptr(unsafe.Pointer(w.place)), uintptr(unsafe.Pointer(w.here)) // any directory: the namespace is the process's
	// No mount that is made or unmounted in one of the namespaces may come to the other.
	l.must5(stepRoot, unix.SYS_MOUNT, 0, uintptr(unsafe.Pointer(w.slash)), 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	if w.root >= 0 {
		l.must5(stepRoot, unix.SYS_MOVE_MOUNT, uintptr(w.root), uintptr(unsafe.Pointer(w.none)), atCWD, place, unix.MOVE_MOUNT_F_EMPTY_PATH)
		rawCall(unix.SYS_CLOSE, uintptr(w.root), 0, 0, 0)
	} else {
		tmpfs := uintptr(unsafe.Pointer(w.tmpfs))
		l.must5(stepRoot, unix.SYS_MOUNT, tmpfs, place, tmpfs, unix.MS_RDONLY, uintptr(unsafe.Pointer(w.mode)))
	}
	l.must(stepRoot, unix.SYS_CHDIR, place, 0, 0)
	l.must(stepRoot, unix.SYS_PIVOT_ROOT, here, here, 0) // the old root is mounted on the new one
	l.must(stepRoot, unix.SYS_UMOUNT2, here, unix.MNT_DETACH, 0)
	l.must(stepRoot, unix.SYS_CHDIR, uintptr(unsafe.Pointer(w.slash)), 0, 0)
}

// rawCall makes a system call whose failure does not matter.
//
//go:nosplit
//go:norace
//go:nocheckptr
func rawCall(number, a1, a2, a3, a4 uintptr) uintptr {
	r, _, _ := syscall.RawSyscall6(number, a1, a2, a3, a4, 0, 0)
	return r
}
