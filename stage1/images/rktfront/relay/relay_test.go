package relay

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, s, err := proc.OpenTerminal(0)
	if err != nil {
		t.Skip(err)
	}
	master, slave = os.NewFile(uintptr(m), "master"), os.NewFile(uintptr(s), "slave")
	return master, slave // a relay uses the caller's terminal until its process ends
}

func TestARelayOutlivesAMomentWithoutDescriptors(t *testing.T) {
	t.Chdir(t.TempDir())
	user, in := openTerminal(t)
	program, tty := openTerminal(t)
	defer program.Close()
	defer tty.Close()
	r, err := New("tty", in, in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		user.Close() // ends the copy of the input
	})
	sender, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sender)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(sender, &unix.SockaddrUnix{Name: "tty"}); err != nil {
		restore()
		t.Fatal(err)
	}
	blocked := t.Run("the relay waits", func(t *testing.T) { wait.Blocked(t, "stream.(*Backoff).Wait", 1) })
	restore()
	if !blocked {
		return
	}
	if err := unix.Sendmsg(sender, []byte("tty"), unix.UnixRights(int(program.Fd())), nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := tty.WriteString("text\n"); err != nil {
		t.Fatal(err)
	}
	seen := make(chan []byte, 1)
	go func() {
		b := make([]byte, 100)
		n, _ := user.Read(b)
		seen <- b[:n]
	}()
	if b := wait.For(t, "the output of the program", seen); !bytes.HasPrefix(b, []byte("text")) {
		t.Errorf("the terminal shows %q", b)
	}
}
