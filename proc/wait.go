package proc

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exit is how a process ended. It converts to an abi.Status.
type Exit struct {
	Code   int       // 0 to 255; 128 + Signal when a signal ended it
	Signal int       // 0 when it exited by itself
	Time   time.Time // when it was reaped
}

// KilledCode is the exit code of a process that SIGKILL has ended, or whose exit is not
// known.
const KilledCode = 128 + int(unix.SIGKILL)

// Killed returns the exit for a process that has ended, or that is taken for ended now,
// without a recorded exit.
func Killed() Exit { return Exit{Code: KilledCode, Signal: int(unix.SIGKILL), Time: time.Now()} }

// childInfo is the part of siginfo_t that waitid(2) fills in. In C a union follows the
// first three fields; the empty array gives it the same alignment.
type childInfo struct {
	signo, errno, code int32
	_                  [0]uintptr
	pid                int32
	uid                uint32
	status             int32
}

// waitid waits as waitid(2) does. ok is false if WNOHANG was given and no child has ended.
func waitid(idType, id, options int) (info childInfo, ok bool, err error) {
	var si unix.Siginfo
	for {
		err = unix.Waitid(idType, id, &si, options, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	// For a pidfd in nonblocking mode, waitid(2) returns EAGAIN in place of an empty
	// answer.
	if errors.Is(err, unix.EAGAIN) {
		return childInfo{}, false, nil
	}
	if err != nil {
		return childInfo{}, false, err
	}
	info = *(*childInfo)(unsafe.Pointer(&si))
	return info, info.pid != 0, nil
}

// Values of si_code for a child that has ended. The values after them are of children that were
// stopped or continued.
const (
	cldExited = iota + 1
	cldKilled
	cldDumped
)

// ended reports whether a child has ended.
func (i childInfo) ended() bool { return i.code >= cldExited && i.code <= cldDumped }

// exit returns the exit. As in a shell, the code after a signal is 128 + signal
// (requirements.md#X1).
func (i childInfo) exit(at time.Time) Exit {
	if i.code == cldExited {
		return Exit{Code: int(i.status) & 0xff, Time: at}
	}
	return Exit{Code: 128 + int(i.status), Signal: int(i.status), Time: at}
}
