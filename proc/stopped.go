package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// StartStopped starts a placeholder, a process that does nothing: this program, stopped
// before its first instruction, so that it costs a page table and needs no other program. It
// ends with this process, or by Kill. If a process sends it SIGCONT, it prints its version
// and ends.
func (c *Children) StartStopped() (*Child, error) {
	// The thread that starts a traced process is its tracer.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
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

// stop turns a traced process, which has just executed its program, into a stopped one
// without a tracer.
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
