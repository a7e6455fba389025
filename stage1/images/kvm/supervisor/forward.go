package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc/stream"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/network"
)

// maxForwards is how many connections are forwarded at a time. Others wait.
const maxForwards = 64

// connectTime is how long the machine may take to accept a connection.
const connectTime = 30 * time.Second

// forwarder forwards connections that processes of the host make in the machine's network namespace,
// as CRI's port-forward does, to the same address in the machine.
type forwarder struct {
	listener *network.Listener // nil before there is a namespace
	failed   bool              // the kernel gives no listener
	serving  sync.WaitGroup
}

// begin begins to forward, if there is a namespace. An error only costs the forwarding.
func (f *forwarder) begin(s *Supervisor) {
	if f.listener != nil || f.failed || s.Network.netns == nil {
		return
	}
	l, err := s.Network.netns.Listen()
	if err != nil {
		f.failed = true
		fmt.Fprintf(s.Log, "ports of the pod are not forwarded: %v\n", err)
		return
	}
	f.listener = l
	f.serving.Go(func() { f.accept(s, l) })
}

// end ends the forwarding. The connection to the agent has ended, and no call begins it again.
func (f *forwarder) end() {
	if f.listener != nil {
		_ = f.listener.Close()
	}
	f.serving.Wait()
}

func (f *forwarder) accept(s *Supervisor, l net.Listener) {
	slots := make(chan struct{}, maxForwards)
	var backoff stream.Backoff
	for {
		slots <- struct{}{}
		conn, err := l.Accept()
		if stream.Temporary(err) && backoff.Wait(s.ctx) == nil {
			<-slots
			continue
		}
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				fmt.Fprintf(s.Log, "ports of the pod are no longer forwarded: %v\n", err)
			}
			return
		}
		backoff.Reset()
		f.serving.Go(func() {
			defer func() { <-slots }()
			s.forward(conn.(*net.TCPConn))
		})
	}
}

// forward carries one connection. If the machine does not accept it, the client's is reset.
func (s *Supervisor) forward(conn *net.TCPConn) {
	defer conn.Close()
	stream, err := s.connect(conn.LocalAddr().String())
	if err != nil {
		_ = conn.SetLinger(0)
		if errors.Is(err, channel.ErrMessage) {
			s.giveUp(fmt.Errorf("the machine: %w", err))
		}
		return
	}
	var sending sync.WaitGroup
	sending.Go(func() { send(stream.Stream, conn) })
	_, _ = io.Copy(conn, stream.r)
	_ = conn.Close()
	stream.Expire()
	_ = stream.Close()
	sending.Wait()
}

// connection is a connection in the machine.
type connection struct {
	*channel.Stream
	r *bufio.Reader
}

// connect makes a connection in the machine to an address of the machine.
func (s *Supervisor) connect(address string) (*connection, error) {
	ctx, cancel := context.WithTimeout(s.ctx, connectTime)
	defer cancel()
	stream, err := s.Session.Open(ctx, channel.Connect, []byte(address))
	if err != nil {
		return nil, err
	}
	c := &connection{stream, bufio.NewReader(stream)}
	stop := context.AfterFunc(ctx, stream.Expire)
	word, body, err := channel.Receive(c.r, channel.MaxNotice)
	stop()
	switch {
	case err != nil:
	case word == channel.Ready:
		return c, nil
	case word == channel.Error:
		err = errors.New(string(body))
	default:
		err = fmt.Errorf("%w: %.20q in place of a connection", channel.ErrMessage, string(word))
	}
	_ = stream.Close()
	return nil, err
}
