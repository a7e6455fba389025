package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// Spawner makes the namespaces of apps by a program of the host that makes containers, in
// place of clone(2). The program executes this binary as init, so that the app is the
// container's first process.
type Spawner interface {
	// Root returns the path at which init finds the app's root, which is r.Rootfs on the
	// host. It is called first: an app that the program cannot make is an Unsupported error.
	Root(r *abi.Request, spec *specs.Spec) (string, error)
	// Prepare returns the process that executes the program. p is the process that clone
	// would make: its namespaces, and the files of init from descriptor 0 on.
	Prepare(p *fork.Process, r *abi.Request, spec *specs.Spec) (*Spawn, error)
}

// Spawn is the process of an app that a program of the host is to make.
type Spawn struct {
	Process *fork.Process // executes the program
	// Words returns the output of the program, once it has ended.
	Words func() string
	// Started is called when the program was started and has its files.
	Started func()
	// Close removes the files that only the making of the container has needed. The app's
	// process is in the container by then, or has ended.
	Close func()
}

// Announce sends the first word of a spawned init, from which the supervisor learns its pid:
// the kernel translates it between PID namespaces. Announce returns when this process is a child
// of the supervisor, which can see its exit then.
func Announce(socket int) error {
	if err := proc.Send(socket, container.Message{Word: container.WordSpawned}.Encode()); err != nil {
		return err
	}
	for {
		n, _, err := unix.Recvfrom(socket, make([]byte, 64), 0)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		default:
			return nil
		}
	}
}

// startSpawn starts the program of a spawner and takes over the process that it makes.
// It kills the program, which would only wait and keep the exit of its child to itself. The
// supervisor is a subreaper, so it inherits the child.
func (s *Supervisor) startSpawn(ctx context.Context, e *Spawn, words seqpacket.Socket) (*proc.Child, error) {
	defer s.children.Expect()() // the process is inherited before it is known
	program, err := s.fork(ctx, e.Process)
	if err != nil {
		return nil, err
	}
	e.Started()
	pid, err := sender(ctx, words)
	status := program.Drop()
	switch {
	case err == io.EOF:
		return nil, fmt.Errorf("no container was made (%s): %s", ending(status), e.Words())
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("wait for a container: %w", err)
	}
	c, err := s.children.Take(pid, 0)
	if err != nil {
		return nil, err
	}
	// If the process has gone, the next read reports that.
	if err := words.Send(container.Message{Word: container.WordAdopted}.Encode()); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		c.Drop()
		return nil, fmt.Errorf("answer process %d: %w", pid, err)
	}
	return c, nil
}

// sender reads the first packet and returns the pid of its sender, as the kernel says.
func sender(ctx context.Context, s seqpacket.Socket) (pid int, err error) {
	defer context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })()
	packet, rights := make([]byte, 64), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	var n, length int
	err = proc.WaitRead(s, func(fd int) (err error) {
		for err = unix.EINTR; err == unix.EINTR; {
			n, length, _, _, err = unix.Recvmsg(fd, packet, rights, unix.MSG_CMSG_CLOEXEC)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	if err := identify(s, false); err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:length])
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		if c, err := unix.ParseUnixCredentials(&m); err == nil && c.Pid > 0 {
			return int(c.Pid), nil
		}
	}
	return 0, errors.New("the first word of init came without its sender")
}

// identify turns the kernel's naming of senders on or off.
func identify(s seqpacket.Socket, on bool) error {
	value := 0
	if on {
		value = 1
	}
	return proc.Control(s, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, value)
	})
}

// byHand has a process enter its cgroup of version 2 by itself, as those of version 1: the
// program of a spawner does not clone into it.
func (g *cgroups) byHand() error {
	if g.dir == nil {
		return nil
	}
	fd, err := unix.Openat(int(g.dir.Fd()), "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the app's cgroup: %w", err)
	}
	g.dir.Close()
	g.dir, g.tasks = nil, []*os.File{os.NewFile(uintptr(fd), "cgroup.procs")}
	return nil
}

// Failed tells the supervisor why a process that has called Announce ends.
func Failed(socket int, err error) {
	_ = proc.Send(socket, container.Message{Word: container.WordError, Text: err.Error(), Code: 1}.Encode())
}
