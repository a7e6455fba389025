package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// agentLimit is how long a stage1 may take to send a listener, on an idle machine.
const agentLimit = 5 * time.Second

// agentSocket is the agent's socket in a spec that belongs to no trial.
const agentSocket = "/run/stage1-verify.sock"

// askAgent asks for a filter that leaves a system call to an agent.
func (v *values) askAgent(s *specs.Spec) {
	s.Linux.Seccomp = &specs.LinuxSeccomp{
		DefaultAction: specs.ActAllow, Architectures: architecture(), ListenerPath: agentSocket, ListenerMetadata: v.metadata,
		Syscalls: []specs.LinuxSyscall{{Names: []string{v.deniedCall}, Action: specs.ActNotify}},
	}
}

// agent is a seccomp agent. Every system call that it is asked about fails: with errnoOfRule if
// the state that came with the listener has the filter's metadata, and with errnoOfArgument otherwise.
type agent struct {
	values *values
	socket *net.UnixListener
	// To close stop, which is the other end of stopped, ends the work on listeners.
	stop, stopped *os.File
	work          sync.WaitGroup
}

// withAgent starts an agent, which ends with the trial, and makes a spec of askAgent name it.
func (t *trial) withAgent(s *specs.Spec) error {
	dir, err := os.Open(t.dir) // whose path the address of a socket may have no room for
	if err != nil {
		return err
	}
	t.later(func(context.Context) error { return dir.Close() })
	s.Linux.Seccomp.ListenerPath = fmt.Sprintf("/proc/%d/fd/%d/agent.sock", os.Getpid(), dir.Fd())
	a := &agent{values: t.values}
	if a.socket, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.Linux.Seccomp.ListenerPath, Net: "unix"}); err != nil {
		return fmt.Errorf("the socket of a seccomp agent: %w", err)
	}
	if a.stopped, a.stop, err = os.Pipe(); err != nil {
		return errors.Join(err, a.socket.Close())
	}
	a.work.Go(a.serve)
	t.later(func(context.Context) error {
		err := errors.Join(a.socket.Close(), a.stop.Close())
		a.work.Wait()
		return errors.Join(err, a.stopped.Close())
	})
	return nil
}

// serve takes one listener from each connection.
func (a *agent) serve() {
	for {
		c, err := a.socket.AcceptUnix()
		if err != nil {
			return // the socket is closed
		}
		_ = c.SetReadDeadline(time.Now().Add(agentLimit * Pace()))
		if listener, errno, ok := a.receiveListener(c); ok {
			a.work.Go(func() { a.refuse(listener, errno) })
		}
		_ = c.Close()
	}
}

// receiveListener returns the listener of a connection, and the error with which its system
// calls are to fail.
func (a *agent) receiveListener(c *net.UnixConn) (listener int, errno uint, ok bool) {
	text, rights := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(8*4))
	n, m, _, _, err := c.ReadMsgUnix(text, rights)
	if err != nil {
		return -1, 0, false
	}
	var fds []int
	messages, _ := unix.ParseSocketControlMessage(rights[:m])
	for i := range messages {
		more, _ := unix.ParseUnixRights(&messages[i])
		fds = append(fds, more...)
	}
	if len(fds) == 0 {
		return -1, 0, false
	}
	for _, fd := range fds[1:] {
		_ = unix.Close(fd)
	}
	var state specs.ContainerProcessState
	if err := json.Unmarshal(text[:n], &state); err != nil || state.Metadata != a.values.metadata {
		return fds[0], a.values.errnoOfArgument, true
	}
	return fds[0], a.values.errnoOfRule, true
}

// refuse answers the system calls of a listener until no process has its filter, or the agent
// ends.
func (a *agent) refuse(listener int, errno uint) {
	defer func() { _ = unix.Close(listener) }()
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(a.stopped.Fd())}}
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil || fds[0].Revents&unix.POLLIN == 0 || fds[1].Revents != 0 {
			return
		}
		var call [80]byte // struct seccomp_notif; its first member is the id
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&call))); e != 0 {
			continue // the process was killed meanwhile
		}
		answer := struct { // seccomp_notif_resp
			id    [8]byte
			value int64
			errno int32
			flags uint32
		}{id: [8]byte(call[:8]), errno: -int32(errno)}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
	}
}
