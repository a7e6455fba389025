package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// lookPath finds the program in the PATH of its own environment. Its errors have the texts
// of os/exec, which clients look for.
func (p *process) lookPath() (string, error) {
	name := p.Args[0]
	found, err := proc.LookPath(name, directories(p.Path), p.executable)
	if errors.Is(err, fs.ErrPermission) && !strings.Contains(name, "/") {
		err = proc.NotInPath(name) // the error that runc returns
	}
	return found, err
}

// directories returns the directories of a PATH.
func directories(path string) []string {
	if path == "" {
		return nil
	}
	dirs := strings.Split(path, ":")
	for i, dir := range dirs {
		if dir == "" {
			dirs[i] = "."
		}
	}
	return dirs
}

func (p *process) executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return unix.EISDIR
	}
	if st := info.Sys().(*syscall.Stat_t); uint64(st.Dev) == p.Self.Dev && st.Ino == p.Self.Ino {
		return &fs.PathError{Op: "stat", Path: file, Err: unix.ENOENT} // as if this process had no program of its own
	}
	err = unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		err = nil
		if info.Mode()&0o111 == 0 {
			err = fs.ErrPermission
		}
	}
	return err
}

// program has everything for the last system calls of this process, so that nothing is
// allocated between them.
type program struct {
	path    *byte
	argv    []*byte
	envv    []*byte
	name    string
	started []byte // the packet that announces the exec

	rlimits []rlimit
	filter  *unix.SockFprog // or nil
	flags   uintptr
	wait    [64]byte // for an answer of the supervisor
	dropCap *capData // to set after the filter was loaded, or nil
	header  unix.CapUserHeader
}

func (c *config) newProgram(path string) (*program, error) {
	p := &program{
		name:    path,
		started: Message{Word: WordExec}.Encode(),
		rlimits: withFiles(c.Process.Rlimits),
		flags:   uintptr(c.SeccompFlags),
		header:  unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3},
	}
	var err error
	if p.path, err = syscall.BytePtrFromString(path); err != nil {
		return nil, err
	}
	if p.argv, err = syscall.SlicePtrFromStrings(c.Process.Args); err != nil {
		return nil, err
	}
	if p.envv, err = syscall.SlicePtrFromStrings(c.Process.Env); err != nil {
		return nil, err
	}
	if len(c.Seccomp) > 0 {
		p.filter = &unix.SockFprog{
			Len:    uint16(len(c.Seccomp) / unix.SizeofSockFilter),
			Filter: (*unix.SockFilter)(unsafe.Pointer(&c.Seccomp[0])),
		}
	}
	if c.keepsAdmin() {
		caps, err := c.Process.Caps.available()
		if err != nil {
			return nil, err
		}
		data := caps.data()
		p.dropCap = &data
	}
	return p, nil
}

// keepsAdmin reports whether CAP_SYS_ADMIN must be kept until the filter is loaded. Only
// one further call follows, which drops it. runc loads such a filter before it changes user
// and capabilities, so filters for runc have to allow more calls.
func (c *config) keepsAdmin() bool {
	return len(c.Seccomp) > 0 && !c.Process.NoNewPrivileges
}

// replace turns this process into the program. It returns only if it fails. The filter is
// loaded as late as possible, and only raw system calls follow it, so the filter need not
// allow the calls of the Go runtime.
func (p *program) replace() error {
	for _, l := range p.rlimits {
		limit := unix.Rlimit{Cur: l.Soft, Max: l.Hard}
		if err := unix.Prlimit(0, l.Resource, &limit, nil); err != nil {
			return fmt.Errorf("set %s to %d:%d: %w", l.Name, l.Soft, l.Hard, err)
		}
	}
	failed, e := p.last()
	if failed != "" {
		return fmt.Errorf("%s: %w", failed, e)
	}
	return &os.PathError{Op: "exec", Path: p.name, Err: e}
}

// last makes the last system calls. It returns the step that has failed before the exec, or
// "".
//
// Neither last nor handOver checks the stack when it is called: at such a check the Go runtime
// may stop the goroutine for a collection of garbage, with a futex call that the filter may
// leave to an agent that does not have the listener yet.
//
//go:nosplit
//go:norace
func (p *program) last() (failed string, e unix.Errno) {
	// Go's preemption signal would run a handler under the filter. Set its default action,
	// which is to ignore it and which the program gets in any case.
	var defaults [4]uintptr
	const sigsetSize = 8
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGURG), uintptr(unsafe.Pointer(&defaults)), 0, sigsetSize, 0, 0)

	unix.RawSyscall(unix.SYS_WRITE, syncFD, uintptr(unsafe.Pointer(&p.started[0])), uintptr(len(p.started)))
	if p.filter != nil {
		var fd uintptr
		fd, _, e = unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, p.flags, uintptr(unsafe.Pointer(p.filter)))
		if e != 0 {
			return "load the seccomp filter", e
		}
		if p.flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER != 0 {
			if e = p.handOver(fd); e != 0 {
				return "hand the seccomp listener over", e
			}
		}
	}
	if p.dropCap != nil {
		_, _, e = unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&p.header)), uintptr(unsafe.Pointer(p.dropCap)), 0)
		if e != 0 {
			return "set capabilities", e
		}
	}
	_, _, e = unix.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(p.path)),
		uintptr(unsafe.Pointer(&p.argv[0])), uintptr(unsafe.Pointer(&p.envv[0])))
	return "", e
}

// handOver tells the supervisor the descriptor of the filter's listener, and waits until
// the supervisor has taken it, because the exec will close it. The filter is already in
// force. Package seccomp makes sure that the filter allows the write to the supervisor. If
// the filter leaves the read to the agent, the read waits until the agent, which gets the
// listener from the supervisor, allows it.
//
//go:nosplit
//go:norace
func (p *program) handOver(fd uintptr) unix.Errno {
	const before, after = `{"type":"` + string(WordListener) + `","code":`, `}`
	packet := p.wait[:copy(p.wait[:], before)]
	divisor := uintptr(1)
	for fd/divisor >= 10 {
		divisor *= 10
	}
	for ; divisor > 0; divisor /= 10 {
		packet = append(packet, byte('0'+fd/divisor%10))
	}
	packet = append(packet, after...)
	if _, _, e := unix.RawSyscall(unix.SYS_WRITE, syncFD, uintptr(unsafe.Pointer(&packet[0])), uintptr(len(packet))); e != 0 {
		return e
	}
	n, _, e := unix.RawSyscall(unix.SYS_READ, syncFD, uintptr(unsafe.Pointer(&p.wait[0])), uintptr(len(p.wait)))
	if e == 0 && n == 0 { // the supervisor has closed the socket
		e = unix.EPIPE
	}
	return e
}
