package supervisor

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
)

// forwarding returns a supervisor with an app, and a function that connects in its network namespace.
func forwarding(t *testing.T, serve func(*channel.Stream, string)) (*world, func(address string) (*net.TCPConn, error)) {
	t.Helper()
	w := newWorld(t)
	w.s.NICs = &slots{}
	w.guest.mu.Lock()
	w.guest.connections = serve
	w.guest.mu.Unlock()
	w.add("a")
	path := fmt.Sprintf("/proc/%d/ns/net", w.s.apps["a"].main.proxy.PID())
	ip(t, w.s.Children, path, "link set lo up")
	return w, func(address string) (conn *net.TCPConn, err error) {
		err = w.s.Network.netns.Do(func() error {
			c, err := net.Dial("tcp", address)
			if err == nil {
				conn = c.(*net.TCPConn)
				t.Cleanup(func() { conn.Close() })
			}
			return err
		})
		return conn, err
	}
}

func TestAConnectionInThePodsNetworkReachesTheMachine(t *testing.T) {
	_, connect := forwarding(t, func(s *channel.Stream, address string) {
		_ = channel.Send(s, channel.Ready, nil)
		r := bufio.NewReader(s)
		for {
			word, body, err := channel.Receive(r, channel.MaxInput)
			if err != nil || word != channel.Input {
				fmt.Fprintf(s, " to %s, %s", address, word)
				_ = s.Close()
				return
			}
			_, _ = s.Write(body)
		}
	})
	conn, err := connect("127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); err != nil || string(text) != "hello to 127.0.0.1:8080, end" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestAConnectionThatTheMachineRefusesIsReset(t *testing.T) {
	w, connect := forwarding(t, func(s *channel.Stream, address string) { say(s, "error", "connection refused") })
	conn, err := connect("127.0.0.1:8080") // the reset may come before the client has seen that it is connected
	if err == nil {
		_, err = io.ReadAll(conn)
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Error(err)
	}
	w.add("b") // the pod goes on
}

func TestAMachineThatAnswersAConnectionWithSomethingElseIsGivenUp(t *testing.T) {
	w, connect := forwarding(t, func(s *channel.Stream, address string) { say(s, "notice", "exit a") })
	_, _ = connect("127.0.0.1:8080")
	wait.For(t, "the end of the pod", w.s.Ended())
	if err := w.s.Why(); !errors.Is(err, channel.ErrMessage) {
		t.Errorf("%v", err)
	}
}

func TestAConnectionEndsWithThePod(t *testing.T) {
	w, connect := forwarding(t, func(s *channel.Stream, address string) { _ = channel.Send(s, channel.Ready, nil) })
	conn, err := connect("127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.Stop, Force: true}, [3]*os.File{}); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(conn); len(text) > 0 {
		t.Errorf("%q, %v", text, err)
	}
}

// shortListener has no descriptors for its first connections.
type shortListener struct {
	accepts int
	errs    []error
}

func (l *shortListener) Accept() (net.Conn, error) {
	l.accepts++
	if l.accepts <= len(l.errs) {
		return nil, &net.OpError{Op: "accept", Err: l.errs[l.accepts-1]}
	}
	return nil, net.ErrClosed
}

func (l *shortListener) Close() error   { return nil }
func (l *shortListener) Addr() net.Addr { return nil }

func TestForwardingOutlivesAWantOfDescriptors(t *testing.T) {
	var log bytes.Buffer
	l := &shortListener{errs: []error{unix.EMFILE, unix.ENFILE, unix.ECONNABORTED}}
	(&forwarder{}).accept(&Supervisor{Config: Config{Log: &log}, ctx: t.Context()}, l)
	if l.accepts != 4 || log.Len() != 0 {
		t.Errorf("it has ended after %d connections: %s", l.accepts, log.String())
	}
}
