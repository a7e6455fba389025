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
	dir := t.TempDir()
	listener := listen(t, dir)
	there, leave, gone := make(chan bool), make(chan struct{}), make(chan bool)
	server := serve.Server{
		Dispatch: func(_ context.Context, a *serve.Asked) error {
			there <- a.Gone()
			<-leave
			gone <- a.Gone()
			return nil
		},
		Code: func(error) int { return 0 }, Answered: func(*serve.Asked) {}, Log: io.Discard,
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(ctx, listener)
	}()
	conn, err := serve.Dial(dir, "sock")
	if err != nil {
		t.Fatal(err)
	}
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
	stop()
	listener.Close()
	<-served
}

func TestAServerEndsWithACallerThatSendsNothing(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: callers are root")
	}
	dir := t.TempDir()
	listener := listen(t, dir)
	server := serve.Server{Dispatch: func(context.Context, *serve.Asked) error { return nil }, Code: func(error) int { return 0 }, Answered: func(*serve.Asked) {}, Log: io.Discard}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(ctx, listener)
	}()
	silent, err := serve.Dial(dir, "sock")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := silent.Begin(serve.Call, make([]byte, 1<<20)); err != nil { // more than the socket has room for
		t.Fatal(err)
	}
	wait.Blocked(t, "serve.(*Server).converse", 1)
	stop()
	listener.Close()
	wait.For(t, "the end of the server", served)
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
