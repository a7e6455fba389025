package network

import (
	"errors"
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAListenerGetsTheConnectionsToEveryPortOfItsNamespace(t *testing.T) {
	s := newSpace(t)
	n, err := Open(s.path())
	must(t, err)
	defer n.Close()
	dial := func(address string) (conn net.Conn, err error) {
		err = errors.Join(n.Do(func() error {
			conn, err = net.Dial("tcp", address)
			return nil
		}), err)
		return conn, err
	}
	s.ip("link set lo up")
	var taken net.Listener // a server that was there first
	must(t, n.Do(func() (err error) {
		taken, err = net.Listen("tcp", "127.0.0.1:81")
		return err
	}))
	defer taken.Close()
	l, err := n.Listen()
	must(t, err)
	for _, to := range []string{"127.0.0.1:80", "127.0.0.1:81", "[::1]:65535", "127.3.2.1:1"} {
		client, err := dial(to)
		must(t, err)
		server, err := l.Accept()
		must(t, err)
		if got := server.LocalAddr().String(); got != to {
			t.Errorf("a connection to %s has the address %s", to, got)
		}
		_, err = server.Write([]byte("hello"))
		must(t, errors.Join(err, server.Close()))
		if text, err := io.ReadAll(client); err != nil || string(text) != "hello" {
			t.Errorf("%s: %q, %v", to, text, err)
		}
		client.Close()
	}
	must(t, l.Close())
	if conn, err := dial("127.0.0.1:80"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after the end: %v, %v", conn, err)
	}
}
