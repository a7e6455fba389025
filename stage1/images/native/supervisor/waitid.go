package supervisor

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// siginfo is the part of struct siginfo that waitid(2) fills in, on 64 bits.
type siginfo struct {
	signo, errno, code int32
	_                  int32
	pid                int32
	uid                uint32
	status             int32
	_                  [100]byte
}

// peek looks for an ended child without reaping it: for one of them, or with
// pid 0 for any. It returns pid 0 if there is none.
func peek(pid int) (int, abi.Status) {
	kind := unix.P_PID
	if pid == 0 {
		kind = unix.P_ALL
	}
	var info siginfo
	for {
		err := unix.Waitid(kind, pid, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || info.pid == 0 {
			return 0, abi.Status{}
		}
		return int(info.pid), info.exit()
	}
}

func (i *siginfo) exit() abi.Status {
	const exited = 1 // CLD_EXITED; all others name a signal
	if i.code == exited {
		return abi.Status{Code: int(i.status & 0xff), Time: time.Now()}
	}
	return abi.Status{Code: 128 + int(i.status), Signal: int(i.status), Time: time.Now()}
}

// reap gives a child's pid back. It has ended, so this does not block.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != unix.EINTR {
			return
		}
	}
}
