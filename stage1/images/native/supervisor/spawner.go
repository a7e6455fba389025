package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// Spawner makes the processes of apps by a program of the host that makes containers, such
// as systemd-nspawn, in place of clone(2). The program executes this binary as init, so
// that init, and then the app, is the container's first process.
type Spawner interface {
	// Root returns the path at which init finds the app's root; on the host it is r.Rootfs.
	// It is called first. For an app that the program cannot make, it returns an
	// Unsupported error.
	Root(r *abi.Request, spec *specs.Spec) (string, error)
	// Prepare returns the process that executes the program. p describes the process that
	// clone would make: its namespaces, and the files of init from descriptor 0 on.
	Prepare(p *fork.Process, r *abi.Request, spec *specs.Spec) (*Spawn, error)
}

// Spawn describes a program of the host that makes the process of an app.
type Spawn struct {
	Process *fork.Process // executes the program
	// Words returns the output of the program. Call it when the program has ended.
	Words func() string
	// Started is called when the program was started with its files.
	Started func()
	// Close removes the files that were only needed to make the container. It is called
	// when the app's process is in the container, or has ended.
	Close func()
}

// Announce sends the first word of a spawned init. The kernel names the sender to the
// supervisor, and translates its pid between PID namespaces. Announce returns when this
// process is a child of the supervisor, so that the supervisor can see its exit.
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

// startSpawn starts the program of a spawner and takes over the process that the program
// makes. Then it kills the program, which would only wait for that process and reap it. The
// supervisor is a subreaper, so it becomes the parent.
func (s *Supervisor) startSpawn(ctx context.Context, e *Spawn, words seqpacket.Socket) (*proc.Child, error) {
	defer s.Children.Expect()() // the process becomes a child of this one before its pid is known here
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
	c, err := s.Children.Take(pid, 0)
	if err != nil {
		return nil, err
	}
	// If the process has ended, the next read reports that.
	if err := words.Send(container.Message{Word: container.WordAdopted}.Encode()); err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		c.Drop()
		return nil, fmt.Errorf("answer process %d: %w", pid, err)
	}
	return c, nil
}

// sender reads the first packet and returns the pid of its sender, which the kernel
// supplies.
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

// identify sets whether the kernel adds the identity of the sender to each packet.
func identify(s seqpacket.Socket, on bool) error {
	value := 0
	if on {
		value = 1
	}
	return proc.Control(s, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, value)
	})
}

// byHand makes a process enter its cgroup by files that are open, because the program of a
// spawner neither opens files of cgroups nor clones into a cgroup of version 2.
func (g *cgroups) byHand() error {
	paths := g.tasks
	if g.dir != nil {
		paths = append(paths, filepath.Join(g.dir.Name(), "cgroup.procs"))
		g.dir.Close()
	}
	g.dir, g.tasks = nil, nil
	for _, path := range paths {
		f, err := proc.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("open the app's cgroup: %w", err)
		}
		g.files = append(g.files, f)
	}
	return nil
}

// Failed sends the supervisor the reason for which a process ends that has called Announce.
func Failed(socket int, err error) {
	_ = proc.Send(socket, container.Message{Word: container.WordError, Text: err.Error(), Code: 1}.Encode())
}
