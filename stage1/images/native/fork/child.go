package fork

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

// All functions below run in the child, without a scheduler, other threads or a garbage
// collector, on a stack that cannot grow. So they must be nosplit and call only nosplit
// functions, which the compiler checks.

// fork makes the child. It returns in the parent only.
//
//go:noinline
//go:norace
//go:nocheckptr
func (l *plan) fork() (pid int, errno syscall.Errno) {
	beforeFork() // also blocks all signals until the child has no handlers
	pid, errno = clone(&l.first)
	if errno != 0 || pid != 0 {
		afterFork()
		return pid, errno
	}
	l.child()
	return 0, 0
}

// clone makes a process with a copy of the memory. It uses clone3(2) only if the arguments
// need it, because seccomp profiles of outer containers may forbid clone3(2).
//
//go:nosplit
//go:norace
//go:nocheckptr
func clone(a *cloneArgs) (int, syscall.Errno) {
	var pid uintptr
	var errno syscall.Errno
	if a.flags&unix.CLONE_INTO_CGROUP != 0 {
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE3, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a), 0, 0, 0, 0)
	} else {
		pid, _, errno = syscall.RawSyscall6(unix.SYS_CLONE, uintptr(a.flags|a.exitSignal), 0, 0, 0, 0, 0)
	}
	return int(pid), errno
}

// child carries the plan out. It does not return.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) child() {
	l.descriptors()
	l.openTasks()
	if forgets {
		l.forget()
	}
	l.signals()
	l.join()
	if l.outside {
		l.assumeRoot()
		l.prepare(l.program)
	}
	l.appear()
	if l.clocks {
		l.time()
	}
	l.identity()
	if l.program != nil {
		if !l.outside {
			l.prepare(l.program)
		}
		l.become()
	}
	if l.idle != nil {
		l.wait(l.idle)
	}
	if l.limited {
		// This cannot fail, because the hard limit stays as it is.
		syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&l.nofile)), 0, 0, 0)
	}
	l.execute()
}

// descriptors moves every file to its descriptor and closes all others, so that this
// process has no other descriptor of its parent.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) descriptors() {
	for i, fd := range l.files {
		if fd == opened {
			continue
		}
		moved, _, errno := syscall.RawSyscall6(unix.SYS_FCNTL, uintptr(fd), unix.F_DUPFD_CLOEXEC, uintptr(l.above), 0, 0, 0)
		if errno != 0 {
			// The report socket may not be in place yet.
			l.report = int(l.files[l.kept])
			l.fail(stepDescriptors, errno, 0)
		}
		l.moved[i] = int32(moved)
	}
	for i, fd := range l.moved {
		if l.files[i] == opened {
			continue
		}
		var flags uintptr
		if i >= l.kept {
			flags = unix.O_CLOEXEC
		}
		if _, _, errno := syscall.RawSyscall6(unix.SYS_DUP3, uintptr(fd), uintptr(i), flags, 0, 0, 0); errno != 0 {
			l.report = int(l.moved[l.kept])
			l.fail(stepDescriptors, errno, 0)
		}
	}
	const last = ^uint32(0)
	if _, _, errno := syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, uintptr(len(l.files)), uintptr(last), 0, 0, 0, 0); errno != 0 {
		l.fail(stepDescriptors, errno, 0)
	}
}

// openTasks enters the devices cgroup, and opens the files of the cgroups that the process enters later, before it joins a user
// namespace, in which it would not have the right to, and a mount namespace, in which they may
// not be. Open files have the lowest free descriptors, so these follow the report's.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) openTasks() {
	if l.devices != nil {
		fd := l.open(l.devices, unix.O_WRONLY, stepCgroup)
		l.must(stepCgroup, unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&l.zero)), 1)
		rawCall(unix.SYS_CLOSE, fd, 0, 0, 0)
	}
	if len(l.tasks) == 0 {
		return
	}
	first := uintptr(l.report + 1)
	if _, _, errno := syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, first, first+uintptr(len(l.tasks))-1, 0, 0, 0, 0); errno != 0 {
		l.fail(stepDescriptors, errno, 0)
	}
	for i := range l.tasks {
		if _, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, atCWD, uintptr(unsafe.Pointer(l.tasks[i])), unix.O_WRONLY, 0, 0, 0); errno != 0 {
			l.fail(stepTasks, errno, uint32(i))
		}
	}
}

// signals sets all signals to their default actions and then unblocks them. This includes
// ignored signals, which would stay ignored after an exec.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) signals() {
	var action [4]uint64 // SIG_DFL, and larger than any struct sigaction
	for sig := uintptr(1); sig <= 64; sig++ {
		syscall.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// join joins the namespaces in which no process of a container sees this one yet.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) join() {
	// From now on processes of containers may see this one, so make it undumpable. The exec
	// of a program that this process can read would make it dumpable again.
	l.hide()
	if l.thrice {
		l.bear()
	}
	l.setns(l.joins)
}

// appear joins and makes the other namespaces. At the points where the parent has to act first, it
// waits for the parent.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) appear() {
	if l.twice {
		pid, errno := clone(&l.second)
		if errno != 0 {
			l.fail(stepClone, errno, 0)
		}
		if pid != 0 {
			l.tell(cloned, 0, uint32(pid))
			exit(0)
		}
	}
	if l.awaited {
		l.await()
	}
	l.setns(l.late)
}

// bear goes on in a child that is born in the cgroup, which may be frozen.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) bear() {
	pid, errno := clone(&l.born)
	if errno != 0 {
		l.fail(stepClone, errno, 0)
	}
	if pid != 0 {
		l.tell(helping, 0, uint32(pid))
		exit(0)
	}
}

// hide makes this process undumpable. A change of its user makes it as dumpable as the
// sysctl fs.suid_dumpable says, so hide is called after each.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) hide() {
	syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_DUMPABLE, 0, 0, 0, 0, 0)
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) setns(joins []join) {
	for i := range joins {
		if _, _, errno := syscall.RawSyscall6(unix.SYS_SETNS, uintptr(joins[i].fd), uintptr(joins[i].flags), 0, 0, 0, 0); errno != 0 {
			l.fail(stepJoin, errno, uint32(joins[i].index))
		}
	}
}

// await waits until the parent sends a byte.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) await() {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_READ, uintptr(l.report), uintptr(unsafe.Pointer(&l.word)), 1, 0, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			l.fail(stepGo, errno, 0)
		case n == 0: // the parent has given up, or has ended
			exit(1)
		default:
			return
		}
	}
}

// time makes a time namespace, sets its clocks and enters it. It has to enter the
// namespace, because after an unshare only children are in it, and an exec enters it only
// since Linux 6.1. time is called before identity, because identity changes the owner of
// this process's files in /proc.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) time() {
	if _, _, errno := syscall.RawSyscall6(unix.SYS_UNSHARE, unix.CLONE_NEWTIME, 0, 0, 0, 0, 0); errno != 0 {
		l.fail(stepTime, errno, 0)
	}
	if len(l.offsets) > 0 {
		fd := l.open(l.offsetsFile, unix.O_WRONLY, stepClocks)
		_, _, errno := syscall.RawSyscall6(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(l.offsets))), uintptr(len(l.offsets)), 0, 0, 0)
		if errno != 0 { // the kernel accepts the whole text in one write, or nothing
			l.fail(stepClocks, errno, 0)
		}
		syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	}
	fd := l.open(l.timeFile, unix.O_RDONLY, stepTime)
	if _, _, errno := syscall.RawSyscall6(unix.SYS_SETNS, fd, unix.CLONE_NEWTIME, 0, 0, 0, 0); errno != 0 {
		l.fail(stepTime, errno, 0)
	}
	syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) open(path *byte, flags uintptr, s step) (fd uintptr) {
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT, ^uintptr(0), uintptr(unsafe.Pointer(path)), flags|unix.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		l.fail(s, errno, 0)
	}
	return fd
}

// identity makes the process root of its user namespace, with a new IPC namespace if it gets
// one, and the leader of a session.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) identity() {
	if !l.outside {
		l.assumeRoot()
	}
	if l.ipc {
		l.must(stepIPC, unix.SYS_UNSHARE, unix.CLONE_NEWIPC, 0, 0)
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_SETSID, 0, 0, 0, 0, 0, 0); errno != 0 {
		l.fail(stepSession, errno, 0)
	}
	if l.dir >= 0 {
		if _, _, errno := syscall.RawSyscall6(unix.SYS_FCHDIR, uintptr(l.dir), 0, 0, 0, 0, 0); errno != 0 {
			l.fail(stepDirectory, errno, 0)
		}
	}
}

// assumeRoot makes the process user and group 0 of its user namespace.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) assumeRoot() {
	if !l.root {
		return
	}
	l.must(stepGroup, unix.SYS_SETRESGID, 0, 0, 0)
	l.must(stepUser, unix.SYS_SETRESUID, 0, 0, 0)
	l.hide()
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) execute() {
	var errno syscall.Errno
	if l.unreadable {
		// This process already has its identity and its namespaces, so the kernel gives the
		// same answer as at the exec.
		_, _, errno = syscall.RawSyscall6(unix.SYS_FACCESSAT2, uintptr(l.exe), uintptr(unsafe.Pointer(&l.none)),
			unix.R_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS, 0, 0)
		if errno != unix.EACCES {
			l.fail(stepReadable, errno, 0)
		}
	}
	if l.exe >= 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVEAT, uintptr(l.exe), uintptr(unsafe.Pointer(&l.none)),
			pointer(l.argv), pointer(l.envv), unix.AT_EMPTY_PATH, 0)
	} else {
		_, _, errno = syscall.RawSyscall6(unix.SYS_EXECVE, uintptr(unsafe.Pointer(l.path)), pointer(l.argv), pointer(l.envv), 0, 0, 0)
	}
	l.fail(stepExec, errno, 0)
}

// fail reports the step that failed and ends the process. Once an app is started, its exit code is
// that of a shell for a program that it cannot execute.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) fail(s step, errno syscall.Errno, value uint32) {
	l.tell(s, errno, value)
	if !l.started {
		exit(1)
	}
	if errno == unix.ENOENT {
		exit(127)
	}
	exit(126)
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) tell(s step, errno syscall.Errno, value uint32) {
	l.words = report{s, uint32(errno), value}
	syscall.RawSyscall6(unix.SYS_WRITE, uintptr(l.report), uintptr(unsafe.Pointer(&l.words)), unsafe.Sizeof(l.words), 0, 0, 0)
}

// exit ends the process. A filter of the app may forbid that; then the process ends by a fault, whose signal
// is forced on every process.
//
//go:nosplit
//go:norace
func exit(code uintptr) {
	var nowhere *byte
	for {
		syscall.RawSyscall6(unix.SYS_EXIT_GROUP, code, 0, 0, 0, 0, 0)
		*nowhere = 0
	}
}
