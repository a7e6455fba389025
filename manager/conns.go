package manager

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
)

// conns accepts and counts connections. It is the handshaker of the ttrpc server.
type conns struct {
	// changed receives a value after the number has changed.
	changed chan struct{}

	credentials ttrpc.UnixCredentialsFunc

	mu   sync.Mutex
	open map[*countedConn]struct{}
}

var _ ttrpc.Handshaker = (*conns)(nil)

func newConns() *conns {
	self := uint32(os.Geteuid())
	return &conns{
		changed: make(chan struct{}, 1),
		open:    map[*countedConn]struct{}{},
		// Accept the same peers as ttrpc.UnixSocketRequireSameUser, and root with
		// any group.
		credentials: func(peer *unix.Ucred) error {
			if peer.Uid != self && peer.Uid != 0 {
				return fmt.Errorf("uid %d is neither %d nor root", peer.Uid, self)
			}
			return nil
		},
	}
}

// Handshake refuses users other than the server's and root (requirements.md#B34).
func (c *conns) Handshake(ctx context.Context, conn net.Conn) (net.Conn, any, error) {
	conn, peer, err := c.credentials.Handshake(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	return c.add(conn), peer, nil
}

// add counts a connection until it is closed.
func (c *conns) add(conn net.Conn) *countedConn {
	counted := &countedConn{Conn: conn}
	counted.closed = sync.OnceFunc(func() { c.change(func() { delete(c.open, counted) }) })
	c.change(func() { c.open[counted] = struct{}{} })
	return counted
}

// change changes c by the function how while it holds c.mu, and then sends to c.changed.
func (c *conns) change(how func()) {
	c.mu.Lock()
	how()
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *conns) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// close closes all open connections.
func (c *conns) close() {
	c.mu.Lock()
	open := slices.Collect(maps.Keys(c.open))
	c.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close()
	}
}

// drain waits until all clients have closed their connections or ctx ends. No other
// goroutine may receive from changed during the wait.
func (c *conns) drain(ctx context.Context) {
	for c.count() > 0 {
		select {
		case <-c.changed:
		case <-ctx.Done():
			return
		}
	}
}

type countedConn struct {
	net.Conn
	closed func()
}

// Close closes the connection and stops counting it.
func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
