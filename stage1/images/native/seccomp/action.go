package seccomp

import (
	"errors"
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// errNoTable says that there is no table for this machine's architecture.
var errNoTable = fmt.Errorf("%w: no table of system calls for this machine's architecture", errors.ErrUnsupported)

// The values that a program returns. As with libseccomp, the answer for an architecture
// that the profile does not cover is badArch.
const (
	retErrnoENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	badArch        = uint32(unix.SECCOMP_RET_KILL_THREAD)
	defaultRet     = uint32(unix.EPERM) // of ERRNO and TRACE without errnoRet
	maxTrace       = 0xffff             // SECCOMP_RET_DATA
	maxErrno       = 4094               // libseccomp accepts no more; the kernel would reduce 4096 to 4095
)

// compileAction returns the value that a program returns for an action. Errors name the
// action. As the runtime spec demands, an errnoRet for an action that has no use for it is
// an error.
func compileAction(action specs.LinuxSeccompAction, errnoRet *uint) (uint32, error) {
	ret := defaultRet
	if errnoRet != nil {
		limit := uint(maxErrno)
		if action == specs.ActTrace {
			limit = maxTrace
		}
		if *errnoRet > limit {
			return 0, fmt.Errorf("errnoRet %d of %s is greater than %d", *errnoRet, action, limit)
		}
		ret = uint32(*errnoRet)
	}
	var value uint32
	switch action {
	case specs.ActErrno:
		return unix.SECCOMP_RET_ERRNO | ret, nil
	case specs.ActTrace:
		return unix.SECCOMP_RET_TRACE | ret, nil
	case specs.ActKill, specs.ActKillThread:
		value = unix.SECCOMP_RET_KILL_THREAD
	case specs.ActKillProcess:
		value = unix.SECCOMP_RET_KILL_PROCESS
	case specs.ActTrap:
		value = unix.SECCOMP_RET_TRAP
	case specs.ActAllow:
		value = unix.SECCOMP_RET_ALLOW
	case specs.ActLog:
		value = unix.SECCOMP_RET_LOG
	case specs.ActNotify:
		value = unix.SECCOMP_RET_USER_NOTIF
	default:
		return 0, fmt.Errorf("%q is not an action", action)
	}
	if errnoRet != nil {
		return 0, fmt.Errorf("action %s has no errnoRet", action)
	}
	return value, nil
}

// permissive reports whether a default action allows unknown system calls. As with runc,
// such a default also applies to calls newer than the profile; with other defaults these
// get ENOSYS. A tracer counts as permissive, because it may know the call.
func permissive(action uint32) bool {
	switch action & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_LOG, unix.SECCOMP_RET_TRACE:
		return true
	}
	return false
}

// flagTSync is not in the spec, but runc and crun accept it.
const flagTSync specs.LinuxSeccompFlag = "SECCOMP_FILTER_FLAG_TSYNC"

// compileFlags returns the flags for seccomp(2). A profile without the field gets
// SPEC_ALLOW, as with runc: it turns off a protection against speculation that costs more
// than it is worth. An empty list means no flags. If the profile needs a listener, its flag
// is added.
func compileFlags(flags []specs.LinuxSeccompFlag, listens bool) (bits uint, err error) {
	if listens {
		bits = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	if flags == nil {
		return bits | unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, nil
	}
	for _, flag := range flags {
		switch flag {
		case flagTSync:
			bits |= unix.SECCOMP_FILTER_FLAG_TSYNC
		case specs.LinuxSeccompFlagLog:
			bits |= unix.SECCOMP_FILTER_FLAG_LOG
		case specs.LinuxSeccompFlagSpecAllow:
			bits |= unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW
		case specs.LinuxSeccompFlagWaitKillableRecv:
			// The flag changes the wait for a listener's answer. The kernel refuses it
			// without a listener, and Linux before 5.19 always refuses it.
			if listens {
				bits |= unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
			}
		default:
			return 0, fmt.Errorf("linux.seccomp.flags: %q is not a flag", flag)
		}
	}
	return bits, nil
}
