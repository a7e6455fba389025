package serve_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// A call that was given up must not succeed after a later call of the same caller. The end of the
// context may come too late for that.
func TestACallKnowsAtOnceThatItsCallerHasGone(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: callers are root")
	}
	there, leave, gone := make(chan bool), make(chan struct{}), make(chan bool)
	conn, end, served := serving(t, func(_ context.Context, a *serve.Asked) error {
		there <- a.Gone()
		<-leave
		gone <- a.Gone()
		return nil
	})
	if err := conn.Send(serve.Call, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if wait.For(t, "the call arrives", there) {
		t.Error("a caller that waits counts as gone")
	}
	conn.Close()
	close(leave)
	if !wait.For(t, "the call goes on", gone) {
		t.Error("a caller that has closed its connection does not count as gone")
	}
	end()
	<-served
}

func TestAServerEndsWithACallerThatSendsNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: callers are root")
	}
	silent, end, served := serving(t, func(context.Context, *serve.Asked) error { return nil })
	defer silent.Close()
	if _, err := silent.Begin(serve.Call, make([]byte, 1<<20)); err != nil { // more than the socket has room for
		t.Fatal(err)
	}
	wait.Blocked(t, "serve.(*Server).converse", 1)
	end()
	wait.For(t, "the end of the server", served)
}

// serving starts a server, and connects a caller with it. end tells the server to end, and served is closed when it has.
func serving(t *testing.T, dispatch func(context.Context, *serve.Asked) error) (conn *serve.Conn, end func(), served <-chan struct{}) {
	t.Helper()
	dir := t.TempDir()
	listener := listen(t, dir)
	server := serve.Server{
		Dispatch: dispatch,
		Code:     func(error) int { return 0 }, Answered: func(*serve.Asked) {}, Log: io.Discard,
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(ctx, listener)
	}()
	conn, err := serve.Dial(dir, "sock")
	if err != nil {
		t.Fatal(err)
	}
	return conn, func() { stop(); listener.Close() }, ended
}

// listen makes the socket of a server.
func listen(t *testing.T, dir string) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	listener := os.NewFile(uintptr(fd), "listener")
	old := unix.Umask(0o177)
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, "sock")})
	unix.Umask(old)
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
