package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// IsInit reports whether a process is the first one of a PID namespace below this
// process's. When such a process ends, the kernel kills all others of its namespace.
func IsInit(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			f := strings.Fields(pids)
			return len(f) > 1 && f[len(f)-1] == "1"
		}
	}
	return false
}

// UserNamespace makes a user namespace with these mappings and no process, for id-mapped mounts.
func UserNamespace(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	var user *os.File
	err := InNewUserNamespace(uids, gids, 0, func(pid int) (err error) {
		user, err = os.Open(fmt.Sprintf("/proc/%d/ns/user", pid))
		return err
	})
	return user, err
}

// InNewUserNamespace calls f with the pid of a process in a new user namespace with these mappings, and in other
// new namespaces, which belong to that one: flags has their CLONE_NEW*. The process is stopped before its first
// instruction, because this process traces it, and ends with f.
func InNewUserNamespace(uids, gids []syscall.SysProcIDMap, flags uintptr, f func(pid int) error) error {
	// The thread that starts the process is its tracer, and must not end before it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"stopped"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | flags, UidMappings: uids, GidMappings: gids, GidMappingsEnableSetgroups: true,
		Ptrace: true, Pdeathsig: syscall.SIGKILL,
	}})
	if err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	err = f(pid)
	// The process is stopped and cannot have ended, so no other process has the pid. Another
	// goroutine may reap it first; Wait4 then returns ECHILD.
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for {
		var ws syscall.WaitStatus
		_, e := syscall.Wait4(pid, &ws, 0, nil)
		if e == syscall.EINTR || e == nil && ws.Stopped() {
			continue
		}
		return err
	}
}

// initialUserNamespace is the inode of the initial user namespace: PROC_USER_INIT_INO of the kernel's
// include/linux/proc_ns.h.
const initialUserNamespace = 0xEFFFFFFD

// InUserNamespace reports whether this process is in another user namespace than the initial one.
func InUserNamespace() bool {
	var st unix.Stat_t
	return unix.Stat("/proc/self/ns/user", &st) == nil && st.Ino != initialUserNamespace
}

// ExplainUntraceable explains why a file below /proc/PID that leads out of this process's namespaces cannot be opened.
func ExplainUntraceable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: containerd needs CAP_SYS_PTRACE for that", err)
	}
	return err
}
