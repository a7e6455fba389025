package proc

import (
	"errors"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exit returns how the process has ended, even if it was the child of another process:
// since Linux 6.15 the kernel keeps the exit of a reaped process for holders of its pidfd.
// ok is false if the process has not ended, or if the kernel does not have the exit.
func (p *Process) Exit() (exit Exit, ok bool) {
	info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	err := Control(p.fd, func(fd int) error {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.PIDFD_GET_INFO, uintptr(unsafe.Pointer(&info)))
		if errno != 0 {
			return errno
		}
		if info.Mask&unix.PIDFD_INFO_EXIT == 0 {
			return errUnknownExit
		}
		return nil
	})
	if err != nil {
		return Exit{}, false
	}
	ws := syscall.WaitStatus(info.Exit_code)
	if ws.Signaled() {
		return Exit{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal()), Time: time.Now()}, true
	}
	return Exit{Code: ws.ExitStatus(), Time: time.Now()}, true
}

var errUnknownExit = errors.New("the kernel does not tell how the process has ended")
