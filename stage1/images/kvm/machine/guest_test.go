package machine_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
)

// guest is a booted machine, with the other end of its channel.
type guest struct {
	machine.Machine
	t       *testing.T
	channel *bufio.Reader
	to      io.Writer
	console *console
}

// console keeps what a guest has printed.
type console struct {
	mu   sync.Mutex
	text strings.Builder
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func (c *console) read(pipe *os.File) {
	defer pipe.Close()
	buf := make([]byte, 4096)
	for {
		n, err := pipe.Read(buf)
		c.mu.Lock()
		c.text.Write(buf[:n])
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// kernel returns the directory that make kvm has filled.
func kernel(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("RKT_TEST_KVM")
	if dir == "" {
		t.Skip("RKT_TEST_KVM names no directory with the kernel of machines: make test-kvm")
	}
	return dir
}

// program builds the first process of guests, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(machine.Dir, "guest")
	cmd := exec.Command("go", "build", "-o", path, "./testdata/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func config(t *testing.T) (machine.Config, *guest) {
	t.Helper()
	release := machine.Children.Expect()
	init, err := program()
	release()
	if err != nil {
		t.Fatal(err)
	}
	dir := kernel(t)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(pair[0]), "channel")
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{t: t, channel: bufio.NewReader(conn), to: conn, console: &console{}}
	read := make(chan struct{})
	go func() { defer close(read); g.console.read(r) }()
	t.Cleanup(func() { w.Close(); <-read })
	return machine.Config{
		Kernel: filepath.Join(dir, "vmlinux"), Modules: filepath.Join(dir, "modules"), Init: init,
		CPUs: 1, Memory: 256 << 20, Accel: machine.TCG,
		Channel: os.NewFile(uintptr(pair[1]), "channel"), Console: w, Dir: t.TempDir(), Children: machine.Children,
	}, g
}

// boot boots a machine and waits until the guest says hello.
func boot(t *testing.T, c machine.Config, g *guest) {
	t.Helper()
	m, err := machine.Boot(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	g.run(m)
	g.expect("hello")
}

// run takes over the guest's machine.
func (g *guest) run(m machine.Machine) {
	t := g.t
	g.Machine = m
	t.Cleanup(func() {
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the console: %s", g.console)
		}
	})
}

// expect waits until the guest says something.
func (g *guest) expect(want string) {
	g.t.Helper()
	if got := g.hear(); got != want {
		g.t.Fatalf("the guest said %q", got)
	}
}

// hear returns the next line of the guest.
func (g *guest) hear() string {
	g.t.Helper()
	said := make(chan string, 1)
	go func() {
		line, err := g.channel.ReadString('\n')
		if err == nil {
			line, err = strconv.Unquote(strings.TrimSpace(line))
		}
		if err != nil {
			line = "nothing: " + err.Error()
		}
		said <- line
	}()
	select {
	case line := <-said:
		return line
	case <-g.Done():
		g.t.Fatalf("the machine has ended: %v", g.Err())
	case <-time.After(5 * time.Minute):
		g.t.Fatal("the guest says nothing")
	}
	return ""
}

// ask sends a line and returns the answer.
func (g *guest) ask(words ...string) string {
	g.t.Helper()
	if _, err := io.WriteString(g.to, strings.Join(words, " ")+"\n"); err != nil {
		g.t.Fatal(err)
	}
	return g.hear()
}
