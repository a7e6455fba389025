package proc

import (
	"strings"

	"golang.org/x/sys/unix"
)

// needed are the system calls without which containers of some or all stage1s cannot be made, and that a seccomp
// profile around containerd, or an emulated kernel, may deny. docs/support.md lists them. Each has arguments with
// which the kernel does nothing and returns another error than that of a denied call.
var needed = []struct {
	name   string
	number uintptr
	args   [5]uintptr
}{
	{"openat2", unix.SYS_OPENAT2, [5]uintptr{none}},
	{"open_tree", unix.SYS_OPEN_TREE, [5]uintptr{none, 0, none}},
	{"move_mount", unix.SYS_MOVE_MOUNT, [5]uintptr{none, 0, none, 0, none}},
	{"mount_setattr", unix.SYS_MOUNT_SETATTR, [5]uintptr{none, 0, none}},
	{"fsopen", unix.SYS_FSOPEN, [5]uintptr{0, none}},
	{"fsconfig", unix.SYS_FSCONFIG, [5]uintptr{none, none}},
	{"fsmount", unix.SYS_FSMOUNT, [5]uintptr{none, none}},
	{"close_range", unix.SYS_CLOSE_RANGE, [5]uintptr{1, 0}},
	{"statx", unix.SYS_STATX, [5]uintptr{none, 0, 0, 1 << 31}},
	{"memfd_create", unix.SYS_MEMFD_CREATE, [5]uintptr{0, none}},
	{"pidfd_open", unix.SYS_PIDFD_OPEN, [5]uintptr{none}},
	{"clone3", unix.SYS_CLONE3, [5]uintptr{}},
	{"execveat", unix.SYS_EXECVEAT, [5]uintptr{none, 0, 0, 0, none}},
	{"faccessat2", unix.SYS_FACCESSAT2, [5]uintptr{none, 0, none}},
	{"setns", unix.SYS_SETNS, [5]uintptr{none}},
	{"unshare", unix.SYS_UNSHARE, [5]uintptr{1}},
	{"waitid", unix.SYS_WAITID, [5]uintptr{none}},
	{"prlimit64", unix.SYS_PRLIMIT64, [5]uintptr{0, none}},
}

const none = ^uintptr(0)

// ExplainDenied adds to the text of an error which system calls this process is denied, if the text says that
// something was not permitted or not implemented.
func ExplainDenied(text string) string {
	lower := strings.ToLower(text)
	if !strings.Contains(lower, unix.ENOSYS.Error()) && !strings.Contains(lower, unix.EPERM.Error()) {
		return text
	}
	var denied []string
	for _, c := range needed {
		_, _, errno := unix.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0)
		if errno == unix.ENOSYS || errno == unix.EPERM {
			denied = append(denied, c.name)
		}
	}
	if denied == nil {
		return text
	}
	return text + " (a seccomp profile, or this kernel, denies containerd what containers need: " + strings.Join(denied, ", ") + ")"
}
