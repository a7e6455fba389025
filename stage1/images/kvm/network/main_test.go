package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const enclosed = "TEST_NETWORK_ENCLOSED"

// TestMain runs the tests in a network namespace of their own, which stands for the host's.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(enclosed) != "" {
		os.Exit(wait.Run(m))
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), enclosed+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
}

// space is a network namespace of a test.
type space struct {
	*os.File
	t *testing.T
}

func newSpace(t *testing.T) space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	s := space{t: t}
	must(t, proc.OnThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			s.File, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	}))
	t.Cleanup(func() { s.Close() })
	s.sysctl("ipv6/conf/default/accept_dad", "0") // a new address is valid at once
	return s
}

func (s space) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.Fd()) }

// do calls f on a thread in the namespace.
func (s space) do(f func() error) {
	s.t.Helper()
	must(s.t, proc.OnThread(func() error {
		if err := unix.Setns(int(s.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	}))
}

// run executes a program in the namespace.
func (s space) run(args ...string) string {
	s.t.Helper()
	out, err := exec.Command("nsenter", append([]string{"--net=" + s.path()}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
}

// ip executes ip with the words of a line.
func (s space) ip(line string) string {
	s.t.Helper()
	return s.run(append([]string{"ip"}, strings.Fields(line)...)...)
}

// sysctl sets a sysctl of the namespace.
func (s space) sysctl(path, value string) {
	s.t.Helper()
	s.do(func() error { return os.WriteFile("/proc/sys/net/"+path, []byte(value), 0) })
}

// attach makes a link of the namespace, whose other end is in another namespace, and gives both ends
// addresses.
func (s space) attach(other space, name, peer, mine, others string) {
	s.t.Helper()
	s.run("ip", "link", "add", "name", name, "mtu", "1400", "type", "veth", "peer", "name", peer, "mtu", "1400", "netns", other.path())
	for _, end := range []struct {
		space
		name, addresses string
	}{{s, name, mine}, {other, peer, others}} {
		for _, a := range strings.Fields(end.addresses) {
			words := []string{"ip", "addr", "add", a, "dev", end.name}
			if strings.Contains(a, ":") {
				words = append(words, "nodad")
			}
			end.run(words...)
		}
		end.run("ip", "link", "set", end.name, "up")
	}
	for space, link := range map[space]string{s: name, other: peer} {
		wait.Until(s.t, "the link-local address", func() bool { return strings.Contains(space.ip("-6 addr show dev "+link), "fe80::") })
	}
}

// listen answers clients of TCP in the namespace: it sends back all that it has read.
func (s space) listen(address string) {
	s.t.Helper()
	var l net.Listener
	s.do(func() (err error) {
		l, err = net.Listen("tcp", address)
		return err
	})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				text, err := io.ReadAll(c)
				if err == nil {
					_, _ = c.Write(text)
				}
			})
		}
	})
	s.t.Cleanup(func() { l.Close(); all.Wait() })
}

// reach sends so much to a listener of another namespace that it takes many full frames, and expects
// it back.
func (s space) reach(address string) {
	s.t.Helper()
	s.do(func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		sent := bytes.Repeat([]byte("packet "), 50_000)
		if _, err := c.Write(sent); err != nil {
			return err
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			return err
		}
		got, err := io.ReadAll(c)
		if err == nil && !bytes.Equal(got, sent) {
			err = fmt.Errorf("%s has sent back %d bytes of %d", address, len(got), len(sent))
		}
		return err
	})
}

// machine is the network of a machine, with a namespace instead of the machine. A link of it is a tap,
// and frames are copied between the two taps as QEMU does.
type machine struct {
	space // inside
	*Network
	*Guest
	nics map[*Tap]*nicOfTest
}

type nicOfTest struct {
	file *os.File
	all  sync.WaitGroup
}

func newMachine(t *testing.T, pod space) *machine {
	t.Helper()
	m := &machine{space: newSpace(t), nics: map[*Tap]*nicOfTest{}}
	m.Guest = NewGuest(m.File)
	var err error
	m.Network, err = Open(pod.path())
	must(t, err)
	t.Cleanup(func() {
		for tap := range m.nics {
			m.unplug(tap)
		}
		must(t, m.Network.Close())
	})
	return m
}

// take takes over the namespace as it is now, and returns the parts that are refused.
func (m *machine) take() []string {
	m.t.Helper()
	c, refused := m.look()
	m.follow(c)
	m.apply(c)
	return refused
}

func (m *machine) look() (Config, []string) {
	m.t.Helper()
	c, refused, err := m.Look()
	must(m.t, err)
	return c, refused
}

func (m *machine) follow(c Config) {
	m.t.Helper()
	added, gone, err := m.Follow(c)
	must(m.t, err)
	for _, tap := range gone {
		m.unplug(tap)
		must(m.t, m.Remove(tap))
	}
	for _, tap := range added {
		m.plug(tap)
	}
}

// apply passes a Config to the machine, as text.
func (m *machine) apply(c Config) {
	m.t.Helper()
	text, err := json.Marshal(c)
	must(m.t, err)
	c, err = ParseConfig(text)
	must(m.t, err)
	must(m.t, m.Apply(m.t.Context(), c))
	m.release()
}

func (m *machine) release() {
	m.t.Helper()
	must(m.t, m.Release(slices.Collect(maps.Keys(m.nics))...))
}

func (m *machine) plug(tap *Tap) {
	m.t.Helper()
	fd, name, err := openTap(m.File)
	must(m.t, err)
	m.run("ip", "link", "set", name, "address", tap.MAC.String())
	n := &nicOfTest{file: os.NewFile(uintptr(fd), name)}
	m.nics[tap] = n
	for _, way := range [][2]*os.File{{n.file, tap.File}, {tap.File, n.file}} {
		n.all.Go(func() {
			frame := make([]byte, 1<<17)
			for {
				size, err := way[0].Read(frame)
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = way[1].Write(frame[:size]) // a link that is down loses it
				}
			}
		})
	}
}

func (m *machine) unplug(tap *Tap) {
	n := m.nics[tap]
	delete(m.nics, tap)
	n.file.Close()
	tap.File.Close()
	n.all.Wait()
}

// same checks that a command shows the same in the machine and in the namespace.
func (m *machine) same(pod space, line string) {
	m.t.Helper()
	if in, out := shown(m.ip(line)), shown(pod.ip(line)); in != out {
		m.t.Errorf("ip %s: the namespace has\n%s\nand the machine\n%s", line, out, in)
	}
}

// shown returns the output of ip without differences between two namespaces of one configuration.
func shown(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "tap") && !strings.Contains(line, "nic") {
			continue // of the namespace's taps
		}
		words := strings.Fields(line)
		lines = append(lines, strings.ReplaceAll(strings.Join(words, " "), " noprefixroute", ""))
	}
	return strings.Join(lines, "\n")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func lacks(t *testing.T, text string, unwanted ...string) {
	t.Helper()
	for _, u := range unwanted {
		if strings.Contains(text, u) {
			t.Errorf("%q is in:\n%s", u, text)
		}
	}
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// read reads a sysctl of the namespace.
func (s space) read(path string) (value string) {
	s.t.Helper()
	s.do(func() error {
		b, err := os.ReadFile("/proc/sys/net/" + path)
		value = strings.TrimSpace(string(b))
		return err
	})
	return value
}
