package container

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// run executes the hooks of one kind, one after the other, in the namespaces, root and
// cgroup of this process. It stops at the first failure.
func (h *hooks) run(kind string, list []specs.Hook, status specs.ContainerState) error {
	if len(list) == 0 {
		return nil
	}
	state := encodeState(h.State, status, os.Getpid())
	for i, hook := range list {
		output, err := runHook(hook, state)
		if err != nil {
			err = fmt.Errorf("error running %s hook #%d (%s): %w", kind, i, hook.Path, err)
			if output = bytes.TrimSpace(output); len(output) > 0 {
				err = fmt.Errorf("%w: %s", err, output)
			}
			return err
		}
	}
	return nil
}

// maxHookOutput is how much of the end of a hook's output an error has, in bytes.
const maxHookOutput = 2048

// runHook executes one hook and returns the end of its output. No goroutine copies it: a further
// thread may be one too many for the pids limit of the app's cgroup, which this process is in.
func runHook(h specs.Hook, state []byte) ([]byte, error) {
	stdin, err := proc.Memory("state", state)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe for its output: %w", err)
	}
	output := ends[0]
	defer unix.Close(output)
	inherited := os.NewFile(uintptr(ends[1]), "output")
	defer inherited.Close()
	args := h.Args
	if len(args) == 0 {
		args = []string{h.Path}
	}
	env := h.Env
	if env == nil {
		env = []string{} // not nil, because a nil environment means this process's
	}
	var pidfd int
	p, err := os.StartProcess(h.Path, args, &os.ProcAttr{
		Env: env, Files: []*os.File{stdin, inherited, inherited}, Sys: &syscall.SysProcAttr{PidFD: &pidfd},
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(pidfd)
	return waitHook(p, pidfd, output, h.Timeout)
}

// waitHook waits for a hook, kills it after timeout seconds, and returns the end of its output. It
// does not wait for processes that the hook has left behind.
func waitHook(p *os.Process, pidfd, output int, timeout *int) (end []byte, err error) {
	var deadline time.Time
	if timeout != nil {
		deadline = time.Now().Add(time.Duration(*timeout) * time.Second)
	}
	end, expired := follow(pidfd, output, deadline)
	if expired {
		_ = p.Kill()
	}
	state, err := p.Wait()
	switch {
	case err != nil:
		return end, err
	case expired:
		return end, fmt.Errorf("did not end within %d seconds", *timeout)
	case !state.Success():
		return end, errors.New(state.String())
	}
	return end, nil
}

// pipeSize is the most that a pipe holds, in bytes.
const pipeSize = 1 << 20

// follow reads the output of a process until that has ended or the deadline, if any, has passed.
func follow(pidfd, output int, deadline time.Time) (end []byte, expired bool) {
	buf := make([]byte, 64<<10) // as much as is in a pipe
	late := 0                   // what was read after the process has ended, which other processes may write
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}, {Fd: int32(output), Events: unix.POLLIN}}
	for {
		wait := -1
		if !deadline.IsZero() {
			wait = int(min(max(0, (time.Until(deadline)+time.Millisecond-1)/time.Millisecond), math.MaxInt32))
		}
		fds[0].Revents, fds[1].Revents = 0, 0
		n, err := unix.Poll(fds, wait)
		if err == unix.EINTR {
			continue
		}
		ended := fds[0].Revents != 0
		if fds[1].Revents != 0 {
			read, _ := unix.Read(output, buf)
			if ended {
				late += read
			}
			if read <= 0 {
				fds[1].Fd = -1 // its end
			} else if end = append(end, buf[:read]...); len(end) > maxHookOutput {
				end = append(end[:0], end[len(end)-maxHookOutput:]...)
			}
		}
		switch {
		case err != nil, ended && (n == 1 || late >= pipeSize): // all that it wrote was read
			return end, false
		case !deadline.IsZero() && !time.Now().Before(deadline):
			return end, true
		}
	}
}
