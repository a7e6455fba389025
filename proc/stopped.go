package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartStopped starts a placeholder: a process that does nothing. It runs this program and
// is stopped before its first instruction, so it needs no other program and no memory
// beyond its page tables. The placeholder ends with this process, or by Kill. If another
// process sends it SIGCONT, it prints its version and ends.
func (c *Children) StartStopped() (*Child, error) {
	// Only the thread that starts a traced process can trace it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lasting.Store(unix.Gettid(), nil) // the placeholder ends with the thread
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("start a placeholder: %w", err)
	}
	defer null.Close()
	child, err := c.Start([]string{"/proc/self/exe", "-v"}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{null, null, null},
		Sys: &syscall.SysProcAttr{Setsid: true, Ptrace: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, fmt.Errorf("start a placeholder: %w", err)
	}
	if err := stop(child.PID()); err != nil {
		return nil, errors.Join(fmt.Errorf("stop the placeholder %d: %w", child.PID(), err), child.Kill())
	}
	return child, nil
}

// stop stops a traced process that has just executed its program, and ends the tracing.
func stop(pid int) error {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	if !status.Stopped() {
		return fmt.Errorf("it has ended with status %#x", uint32(status))
	}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(syscall.SIGSTOP), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
