package fork

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions below run in the child. For them the rules of child.go hold.

const atCWD = ^uintptr(99) // AT_FDCWD

// become executes the program in a process that prepare has prepared. It does not return.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) become() {
	b := l.program
	if b.terminal {
		l.must(stepTerminal, unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0)
	}
	if b.first != nil {
		l.pause()
		l.started = true
	}
	for i := range b.limits {
		l.must(stepLimit, unix.SYS_PRLIMIT64, 0, uintptr(b.limits[i].Resource), uintptr(unsafe.Pointer(&b.limits[i].Rlimit)))
	}
	l.tell(executing, 0, 0)
	if !b.filtered {
		l.loadFilter(b)
	}
	_, _, errno := syscall.RawSyscall6(unix.SYS_EXECVE, uintptr(unsafe.Pointer(b.paths[b.path])), pointer(l.argv), pointer(l.envv), 0, 0, 0)
	l.fail(stepExec, errno, uint32(b.path))
}

// loadFilter loads the filter, if there is one, and drops CAP_SYS_ADMIN, if that was kept for it.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) loadFilter(b *becoming) {
	if b.filter != nil {
		l.must(stepFilter, unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(b.flags), uintptr(unsafe.Pointer(b.filter)))
	}
	if b.keepsAdmin {
		b.dropAdmin()
		l.must(stepCapabilities, unix.SYS_CAPSET, uintptr(unsafe.Pointer(&b.header)), uintptr(unsafe.Pointer(&b.caps)), 0)
	}
	b.filtered = true
}

// prepare does everything that takes more rights than the program gets. The process of an exec does it
// before the clone by which it appears in the PID namespace. A process of the container that has
// CAP_SYS_PTRACE can take it over there, with all that it has.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) prepare(b *becoming) {
	l.enterCgroups()
	l.useAllCPUs(b)
	if b.first != nil {
		l.makeFirst(b.first)
	}
	if b.labelled {
		l.writeLabel(b)
	}
	if b.terminal {
		l.openTerminal(b)
	}
	// A path of the app may lead through /proc/self/fd.
	const last = ^uint32(0)
	if _, _, errno := syscall.RawSyscall6(unix.SYS_CLOSE_RANGE, uintptr(l.kept+1), uintptr(last), 0, 0, 0, 0); errno != 0 {
		l.fail(stepDescriptors, errno, 0)
	}
	if b.first != nil {
		l.enterRoot(b)
	}
	if b.keyring != nil {
		l.joinKeyring(b)
	}
	if b.home {
		l.lookUpHome(b)
	}
	l.ownFiles(b)
	if b.noNew {
		l.must(stepNoNewPrivileges, unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	}
	// Root may enter directories that the user may not, and the user may enter directories
	// of a network filesystem that root may not.
	b.entered = l.enterDir(b, unix.EACCES)
	l.assume(b)
	if !b.entered {
		l.enterDir(b, 0)
	}
	l.lookUp(b)
	syscall.RawSyscall6(unix.SYS_UMASK, uintptr(b.umask), 0, 0, 0, 0, 0)
	if l.outside && b.keepsAdmin && b.early {
		l.loadFilter(b)
	}
}

// enterCgroups enters the cgroups of version 1.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) enterCgroups() {
	for i := range l.tasks {
		// A thread that moves itself does not wait for a grace period of the kernel.
		l.must(stepCgroup, unix.SYS_WRITE, uintptr(l.report+1+i), uintptr(unsafe.Pointer(&l.zero)), 1)
	}
}

// useAllCPUs is proc.UseAllCPUs.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) useAllCPUs(b *becoming) {
	const most = 8192 / 8 // of bytes in a mask: CONFIG_NR_CPUS is at most 8192
	for i := range most {
		b.buf[i] = 0xff
	}
	syscall.RawSyscall6(unix.SYS_SCHED_SETAFFINITY, 0, most, uintptr(unsafe.Pointer(&b.buf)), 0, 0, 0)
}

// must makes a system call. If the call fails, the step has failed.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) must(s step, number, a1, a2, a3 uintptr) uintptr {
	return l.must5(s, number, a1, a2, a3, 0, 0)
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) must5(s step, number, a1, a2, a3, a4, a5 uintptr) uintptr {
	r, _, errno := syscall.RawSyscall6(number, a1, a2, a3, a4, a5, 0)
	if errno != 0 {
		l.fail(s, errno, 0)
	}
	return r
}

// writeLabel writes the label. The link thread-self leads to this process in every procfs that
// shows it.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) writeLabel(b *becoming) {
	fd, errno := uintptr(0), syscall.Errno(unix.ENOENT)
	for i := 0; i < len(b.names) && errno == unix.ENOENT; i++ {
		fd, _, errno = syscall.RawSyscall6(unix.SYS_OPENAT, uintptr(b.proc), uintptr(unsafe.Pointer(b.names[i])), unix.O_WRONLY|unix.O_CLOEXEC, 0, 0, 0)
	}
	if errno != 0 {
		l.fail(stepLabel, errno, 0)
	}
	l.must(stepLabel, unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b.label))), uintptr(len(b.label)))
}

// joinKeyring joins or makes a session keyring and lets processes of the same user find it.
// It is no error if the kernel has no keyrings or forbids them.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) joinKeyring(b *becoming) {
	id, _, errno := syscall.RawSyscall6(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, uintptr(unsafe.Pointer(b.keyring)), 0, 0, 0, 0)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		return
	}
	if errno != 0 {
		l.fail(stepKeyring, errno, 0)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_KEYCTL, unix.KEYCTL_DESCRIBE, id, uintptr(unsafe.Pointer(&b.buf)), uintptr(len(b.buf)), 0, 0)
	if errno != 0 || n > uintptr(len(b.buf)) {
		l.fail(stepKeyring, errno, 0)
	}
	// The text is "keyring;UID;GID;PERMISSIONS;NAME".
	field, perm, digits := 0, uintptr(0), 0
	for _, c := range b.buf[:n] {
		switch {
		case c == ';':
			field++
		case field != 3:
		case c >= '0' && c <= '9':
			perm, digits = perm<<4|uintptr(c-'0'), digits+1
		case c >= 'a' && c <= 'f':
			perm, digits = perm<<4|uintptr(c-'a'+10), digits+1
		default:
			l.fail(stepKeyring, unix.EINVAL, 0)
		}
	}
	if digits == 0 || digits > 8 {
		l.fail(stepKeyring, unix.EINVAL, 0)
	}
	const userSearch = 0x080000
	l.must(stepKeyring, unix.SYS_KEYCTL, unix.KEYCTL_SETPERM, id, perm|userSearch)
}

// ownFiles makes the program's user the owner of its files, so that it can open them again
// by name. It ignores files whose owner cannot be changed, because their filesystem is
// read-only or has no owners, or because the user namespace does not map the owner.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) ownFiles(b *becoming) {
	for fd := range uintptr(l.kept) {
		l.must(stepOwner, unix.SYS_FSTAT, fd, uintptr(unsafe.Pointer(&b.stat)), 0)
		if isNull(&b.stat) || b.stat.Uid == b.uid {
			continue
		}
		_, _, errno := syscall.RawSyscall6(unix.SYS_FCHOWN, fd, uintptr(b.uid), ^uintptr(0), 0, 0, 0)
		if errno != 0 && errno != unix.EINVAL && errno != unix.EPERM && errno != unix.EROFS {
			l.fail(stepOwner, errno, 0)
		}
	}
}

// enterDir enters the working directory, but not by magic links of /proc, which may lead to
// files of the host. It returns false if that fails with the tolerated error.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) enterDir(b *becoming, tolerated syscall.Errno) bool {
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, atCWD, uintptr(unsafe.Pointer(b.dir)),
		uintptr(unsafe.Pointer(&b.opened)), unix.SizeofOpenHow, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall6(unix.SYS_FCHDIR, fd, 0, 0, 0, 0, 0)
		syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	}
	if errno != 0 {
		if errno == tolerated {
			return false
		}
		l.fail(stepDirectory, errno, 0)
	}
	// For a directory outside of the root the kernel returns "(unreachable)/…".
	n := l.must(stepDirectory, unix.SYS_GETCWD, uintptr(unsafe.Pointer(&b.buf)), uintptr(len(b.buf)), 0)
	if n == 0 || b.buf[0] != '/' {
		l.fail(stepDirectory, unix.EXDEV, 0)
	}
	return true
}

// assume gives the process the identity of the program. With keepsAdmin it also keeps
// CAP_SYS_ADMIN, without which it could load a filter only with no_new_privs.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) assume(b *becoming) {
	l.must(stepCapabilities, unix.SYS_CAPGET, uintptr(unsafe.Pointer(&b.header)), uintptr(unsafe.Pointer(&b.caps)), 0)
	for i := range b.caps {
		shift, c := 32*i, &b.caps[i]
		has := c.Permitted
		c.Effective, c.Permitted, c.Inheritable = uint32(b.wanted.Effective>>shift)&has, uint32(b.wanted.Permitted>>shift)&has, uint32(b.wanted.Inheritable>>shift)&has
	}
	if b.keepsAdmin {
		b.caps[0].Permitted |= 1 << unix.CAP_SYS_ADMIN
		b.caps[0].Effective |= 1 << unix.CAP_SYS_ADMIN
	}
	for i := range uintptr(64) {
		if b.wanted.Bounding&(1<<i) != 0 {
			continue
		}
		_, _, errno := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, i, 0, 0, 0, 0)
		if errno == unix.EINVAL {
			break // the kernel has no further capabilities
		}
		if errno != 0 {
			l.fail(stepCapabilities, errno, uint32(i))
		}
	}
	l.must(stepCapabilities, unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1, 0)
	_, _, errno := syscall.RawSyscall6(unix.SYS_SETGROUPS, uintptr(len(b.groups)), uintptr(unsafe.Pointer(unsafe.SliceData(b.groups))), 0, 0, 0, 0)
	if errno != 0 && !(b.unmapped && errno == unix.EPERM && len(b.groups) == 0) {
		l.fail(stepGroup, errno, 0)
	}
	l.must(stepGroup, unix.SYS_SETRESGID, uintptr(b.gid), uintptr(b.gid), uintptr(b.gid))
	l.must(stepUser, unix.SYS_SETRESUID, uintptr(b.uid), uintptr(b.uid), uintptr(b.uid))
	l.hide()
	l.must(stepCapabilities, unix.SYS_CAPSET, uintptr(unsafe.Pointer(&b.header)), uintptr(unsafe.Pointer(&b.caps)), 0)
	syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0)
	for i := range uintptr(64) {
		if b.wanted.Ambient&(1<<i) != 0 { // the kernel refuses what is not permitted and inheritable
			syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, i, 0, 0, 0)
		}
	}
	l.must(stepCapabilities, unix.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 0, 0)
}

// dropAdmin takes CAP_SYS_ADMIN out of the sets that are set next, unless the program gets
// it.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (b *becoming) dropAdmin() {
	const admin = 1 << unix.CAP_SYS_ADMIN
	if b.wanted.Permitted&admin == 0 {
		b.caps[0].Permitted &^= admin
	}
	if b.wanted.Effective&admin == 0 {
		b.caps[0].Effective &^= admin
	}
}

// lookUp finds the program.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) lookUp(b *becoming) {
	for i := range b.paths {
		path := uintptr(unsafe.Pointer(b.paths[i]))
		_, _, errno := syscall.RawSyscall6(unix.SYS_NEWFSTATAT, atCWD, path, uintptr(unsafe.Pointer(&b.stat)), 0, 0, 0)
		if errno != 0 || b.stat.Mode&unix.S_IFMT == unix.S_IFDIR || uint64(b.stat.Dev) == b.not.Dev && b.stat.Ino == b.not.Ino {
			continue
		}
		_, _, errno = syscall.RawSyscall6(unix.SYS_FACCESSAT2, atCWD, path, unix.X_OK, unix.AT_EACCESS, 0, 0)
		if errno == 0 {
			b.path = i
			return
		}
		if errno == unix.ENOSYS || errno == unix.EPERM {
			l.fail(stepLookUp, errno, 0)
		}
	}
	l.fail(stepLookUp, unix.ENOENT, 0)
}
