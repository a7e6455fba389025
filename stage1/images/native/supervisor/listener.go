package supervisor

import (
	"errors"
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// handOver takes the listener of the process's seccomp filter out of the process, and
// passes it to the agent. descriptor is its number in the process. The process waits
// meanwhile, with the filter in force.
func (i *initProcess) handOver(descriptor int) error {
	if i.listener == nil {
		return errors.New("a seccomp listener that the profile does not ask for")
	}
	pidfd, err := i.child.Pidfd()
	if err != nil {
		return err
	}
	defer pidfd.Close()
	fd, err := unix.PidfdGetfd(int(pidfd.Fd()), descriptor, 0)
	if err != nil {
		return fmt.Errorf("take the seccomp listener of process %d: %w", i.child.PID(), err)
	}
	listener := os.NewFile(uintptr(fd), "seccomp listener")
	defer listener.Close()
	return i.listener(i.child.PID(), listener)
}

// tellAgent sends the listener of one of the app's processes to the seccomp agent that the
// spec names, with the state of that process.
func (s *Supervisor) tellAgent(a *app, pid int, listener *os.File) error {
	status := specs.StateCreated
	if s.stateOf(a) == running {
		status = specs.StateRunning
	}
	state := container.ProcessState(a.spec, a.container, a.bundle, string(status), pid, a.init.child.PID())
	if err := hand(a.spec.Linux.Seccomp.ListenerPath, "seccomp agent", state, listener); err != nil {
		return fmt.Errorf("linux.seccomp.listenerPath: %w", err)
	}
	return nil
}
