package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// carried is the number of bytes of a connection.
const carried = 64 << 20

// measureNetwork sends bytes from containers to this program and back, through a pair of veth, beside
// native.
func measureNetwork(ctx context.Context, b *bench) (err error) {
	ctx = b.namespaced(ctx)
	var links []*link
	defer func() {
		for _, l := range links {
			err = errors.Join(err, l.close())
		}
	}()
	var all []sampler
	for _, column := range []struct{ name, subject string }{{virtual, virtual}, {reference, native}} {
		l, err := newLink()
		if err != nil {
			return err
		}
		links = append(links, l)
		var task containerd.Task
		err = b.undisturbed(ctx, func(ctx context.Context) (err error) {
			s := b.subject(column.subject)
			task, err = b.runningWith(ctx, s, s.name, oci.WithProcessArgs(sleeper()...),
				oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: l.pod}))
			return err
		})
		if err != nil {
			return err
		}
		all = append(all, sampler{column.name, func(ctx context.Context, record recorder) error {
			if err := b.measureConnection(ctx, task, l, opSend, opSendCPU, record); err != nil {
				return err
			}
			return b.measureConnection(ctx, task, l, opReceive, opReceiveCPU, record)
		}})
	}
	if err := b.turns(ctx, fmt.Sprintf("%d MB through TCP", carried>>20), b.rounds(), 1, all...); err != nil {
		return err
	}
	return b.clear(ctx)
}

// measureConnection has a container connect to this program, and send or receive.
func (b *bench) measureConnection(ctx context.Context, task containerd.Task, l *link, took, cpu operation, record recorder) error {
	used, err := b.meter.settled(ctx)
	if err != nil {
		return err
	}
	how := "send"
	if took == opReceive {
		how = "receive"
	}
	ended := make(chan error, 1)
	go func() {
		_, err := b.output(ctx, task, "testprog", "transfer", how, l.listener.Addr().String(), strconv.Itoa(carried))
		ended <- err
	}()
	taken, err := l.transfer(ctx, took == opReceive)
	if err = errors.Join(err, <-ended); err != nil {
		return err
	}
	now, err := b.meter.settled(ctx)
	if err != nil {
		return err
	}
	record(took, carried/1e6/taken.Seconds())
	record(cpu, (now.cpu-used.cpu)/(carried/1e9))
	return nil
}

// link is a pair of veth between a network namespace for a pod and one in which this program listens.
type link struct {
	pod      string // path of the namespace
	holders  []*exec.Cmd
	listener *net.TCPListener
}

const subnet = "192.0.2."

// newLink makes the namespaces, the pair and the listener.
func newLink() (_ *link, err error) {
	l := &link{}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	var paths []string
	for range 2 {
		holder := exec.Command("sleep", "100000")
		holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
		if err := holder.Start(); err != nil {
			return nil, err
		}
		l.holders = append(l.holders, holder)
		paths = append(paths, fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid))
	}
	l.pod = paths[0]
	for _, c := range []struct{ netns, line string }{
		{paths[1], "ip link add eth0 type veth peer name eth0 netns " + l.pod},
		{paths[0], "ip addr add " + subnet + "7/24 dev eth0"},
		{paths[0], "ip link set eth0 up"},
		{paths[1], "ip addr add " + subnet + "1/24 dev eth0"},
		{paths[1], "ip link set eth0 up"},
	} {
		cmd := exec.Command("nsenter", append([]string{"--net=" + c.netns}, strings.Fields(c.line)...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", c.line, err, out)
		}
	}
	l.listener, err = listenIn(paths[1], subnet+"1:0")
	return l, err
}

// listenIn listens in a network namespace. The thread that enters it ends with its goroutine.
func listenIn(netns, address string) (*net.TCPListener, error) {
	type made struct {
		listener net.Listener
		err      error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread()
		f, err := os.Open(netns)
		if err != nil {
			result <- made{nil, err}
			return
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			result <- made{nil, err}
			return
		}
		l, err := net.Listen("tcp", address)
		result <- made{l, err}
	}()
	m := <-result
	if m.err != nil {
		return nil, fmt.Errorf("listen in %s: %w", netns, m.err)
	}
	return m.listener.(*net.TCPListener), nil
}

// transfer accepts a connection and sends or receives. It returns the time from the connection to the
// last byte, or, if it sends, until the kernel at the other end has acknowledged it.
func (l *link) transfer(ctx context.Context, send bool) (time.Duration, error) {
	deadline, _ := ctx.Deadline()
	if err := l.listener.SetDeadline(deadline); err != nil {
		return 0, err
	}
	conn, err := l.listener.AcceptTCP()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, err
	}
	begin := time.Now()
	if send {
		block := make([]byte, blockSize)
		for range carried / blockSize {
			if _, err := conn.Write(block); err != nil {
				return 0, err
			}
		}
		if err := conn.CloseWrite(); err != nil {
			return 0, err
		}
		err := acknowledged(ctx, conn)
		return time.Since(begin), err
	}
	n, err := io.CopyN(io.Discard, conn, carried)
	if err != nil {
		return 0, fmt.Errorf("after %d bytes: %w", n, err)
	}
	return time.Since(begin), nil
}

// acknowledged waits until the other end has acknowledged everything that was sent.
func acknowledged(ctx context.Context, conn *net.TCPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var left int
		var ioctl error
		if err := raw.Control(func(fd uintptr) { left, ioctl = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); err != nil || ioctl != nil {
			return errors.Join(err, ioctl)
		}
		if left <= 1 { // the end counts as one
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d bytes are not acknowledged: %w", left, ctx.Err())
		}
	}
}

func (l *link) close() (err error) {
	if l.listener != nil {
		err = l.listener.Close()
	}
	for _, h := range l.holders {
		err = errors.Join(err, h.Process.Kill())
		_ = h.Wait() // it was killed
	}
	return err
}
