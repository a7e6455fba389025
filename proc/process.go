package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is one process, even if its pid is reused.
type Process struct {
	pid   int
	start uint64
	fd    *os.File
}

// Open returns the process that has this pid and start time. A start time of 0 means the
// process that has the pid now, for a pid that cannot have been reused, such as that of a
// child that was not reaped. The error unwraps to ErrGone if the process was reaped. A zombie
// can be opened.
func Open(pid int, startTime uint64) (*Process, error) {
	fd, err := pidfd(pid)
	if err != nil {
		return nil, err
	}
	p := &Process{pid: pid, start: startTime, fd: fd}
	// Read the start time after the pidfd was opened. If it is right now, the pidfd belongs
	// neither to a later process with this pid nor to an earlier one.
	start, err := StartTime(pid)
	if err != nil {
		_ = fd.Close()
		return nil, err
	}
	if startTime == 0 {
		p.start = start
	}
	if start != p.start {
		_ = fd.Close()
		return nil, fmt.Errorf("process %d, started at %d: the pid is now of one started at %d: %w", pid, startTime, start, ErrGone)
	}
	return p, nil
}

// pidfd opens a pidfd on which the runtime's poller can wait.
func pidfd(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.EINVAL) && pid > 0 {
		// PIDFD_NONBLOCK came with Linux 5.10, pidfd_open with 5.3.
		if fd, err = unix.PidfdOpen(pid, 0); err == nil {
			if err = unix.SetNonblock(fd, true); err != nil {
				_ = unix.Close(fd)
			}
		}
	}
	switch {
	case errors.Is(err, unix.ESRCH), pid > 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)):
		// If the pid is the number of a thread, or of a process group or session whose
		// first process has ended, Linux before 6.15 returns EINVAL. Since then it returns
		// ENOENT for a thread.
		return nil, fmt.Errorf("process %d: %w", pid, ErrGone)
	case err != nil:
		return nil, fmt.Errorf("pidfd of process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Signal sends a signal to the process that has this pid and start time. The error unwraps to
// ErrGone if the process does not exist.
func Signal(pid int, startTime uint64, sig syscall.Signal) error {
	p, err := Open(pid, startTime)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.Signal(sig)
}

// Alive reports whether the process that has this pid and start time has not ended.
func Alive(pid int, startTime uint64) bool {
	s, err := ReadStat(pid)
	return err == nil && s.StartTime == startTime && s.State != 'Z' && s.State != 'X'
}

// PID returns the pid that the process has, or had.
func (p *Process) PID() int { return p.pid }

// StartTime returns the process's start time, in clock ticks since boot.
func (p *Process) StartTime() uint64 { return p.start }

// Signal sends a signal; 0 sends none. The error unwraps to ErrGone after the process was
// reaped. A zombie accepts any signal, as with kill(2).
func (p *Process) Signal(sig syscall.Signal) error {
	err := Control(p.fd, func(fd int) error {
		return sendSignal(fd, p.pid, p.start, sig)
	})
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", p.pid, ErrGone)
	}
	if err != nil {
		return fmt.Errorf("signal %d to process %d: %w", int(sig), p.pid, err)
	}
	return nil
}

// sendSignal sends a signal to the process of a pidfd. A seccomp profile that is older than
// pidfd_send_signal(2) denies the call. Then the signal is sent to the pid, if the process is still there: if its
// parent reaps it after that, and another process gets its pid at once, that one gets the signal, as with any
// program that uses kill(2).
func sendSignal(fd, pid int, start uint64, sig syscall.Signal) error {
	err := unix.PidfdSendSignal(fd, sig, nil, 0)
	if err != unix.ENOSYS && err != unix.EPERM {
		return err
	}
	now, err := StartTime(pid)
	if err != nil {
		return err
	}
	if now != start {
		return ErrGone
	}
	return unix.Kill(pid, sig)
}

// Alive reports whether the process has not ended. A zombie has ended.
func (p *Process) Alive() bool {
	err := Control(p.fd, func(fd int) error {
		if ended(fd) {
			return ErrGone
		}
		return nil
	})
	return err == nil
}

// Wait waits until the process has ended and returns nil, without reaping it. If ctx ends
// first, Wait returns ctx's error. Only one Wait of a Process may be in progress.
func (p *Process) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.fd.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			_ = p.fd.SetReadDeadline(time.Time{})
		}
	}()
	err := waitReadable(p.fd)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.Cause(ctx)
	}
	return err
}

// Close closes the pidfd. It ends a Wait in progress.
func (p *Process) Close() error { return p.fd.Close() }

// waitReadable blocks the goroutine in the runtime's poller until the process of a pidfd
// has ended.
func waitReadable(pidfd *os.File) error {
	return WaitRead(pidfd, func(fd int) error {
		if ended(fd) {
			return nil
		}
		return unix.EAGAIN
	})
}

// ended reports whether the process of a pidfd is a zombie or gone. It does not wait.
func ended(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(p, 0)
		if err == unix.EINTR {
			continue
		}
		return n > 0 && err == nil
	}
}
