package main

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// connectTime is how long a server in the machine may take to accept a connection, as on the host's side.
const connectTime = 30 * time.Second

// connect carries a stream of the host to a server in the machine.
func (a *agent) connect(ctx context.Context, d data, address string) {
	defer d.Close()
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	var conn *net.TCPConn
	err := a.network.within(func() (err error) { // a socket stays in the namespace of the thread that makes it
		conn, err = dial(ctx, address)
		return err
	})
	if err != nil {
		text := err.Error()
		_ = channel.Send(d, channel.Error, []byte(text[:min(len(text), channel.MaxNotice)]))
		return
	}
	defer conn.Close()
	if err := channel.Send(d, channel.Ready, nil); err != nil {
		return
	}
	go func() {
		d.pour(conn)
		_ = conn.CloseWrite()
	}()
	_, _ = io.Copy(struct{ io.Writer }{d}, conn)
}

// dial connects to an address of the machine. A server may be on the loopback address of the other
// family: a client of the host whose connection is accepted does not try that.
func dial(ctx context.Context, address string) (*net.TCPConn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		host, port, splitErr := net.SplitHostPort(address)
		other := map[string]string{"127.0.0.1": "::1", "::1": "127.0.0.1"}[host]
		if splitErr != nil || other == "" {
			return nil, err
		}
		var otherErr error
		if conn, otherErr = (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(other, port)); otherErr != nil {
			return nil, err
		}
	}
	return conn.(*net.TCPConn), nil
}
