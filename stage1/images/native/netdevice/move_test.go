package netdevice

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

const enclosed = "TEST_NETDEVICE_ENCLOSED"

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

// namespace makes a network namespace, which a process holds as in a pod. It returns the
// namespace, and a function that runs ip in it.
func namespace(t *testing.T) (*os.File, func(args ...string) string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid))
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f, func(args ...string) string {
		t.Helper()
		return run(t, append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", cmd.Process.Pid), "ip"}, args...)...)
	}
}

// makeDevice makes a veth pair on the host. The end that is called name has the attributes that a
// network driver sets. The name of the other end is that name and a p.
func makeDevice(t *testing.T, name string) {
	t.Helper()
	ip(t, "link", "add", name, "address", "02:00:00:00:00:07", "mtu", "1400", "type", "veth", "peer", "name", name+"p")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", name+"p").Run() })
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, append([]string{"ip"}, args...)...)
}

func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return string(out)
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

func TestADeviceMovesWithItsPermanentAddresses(t *testing.T) {
	ns, inside := namespace(t)
	makeDevice(t, "data0")
	ip(t, "addr", "add", "192.0.2.7/24", "broadcast", "192.0.2.255", "dev", "data0", "label", "data0:a")
	ip(t, "addr", "add", "192.0.2.9", "peer", "198.51.100.1", "dev", "data0")
	ip(t, "addr", "add", "2001:db8::7/64", "dev", "data0", "nodad")
	ip(t, "addr", "add", "127.0.0.33/8", "scope", "host", "dev", "data0")
	ip(t, "addr", "add", "192.0.2.8/24", "dev", "data0", "valid_lft", "1000", "preferred_lft", "1000")
	ip(t, "link", "set", "data0p", "up")
	before, err := home(t).find("data0")
	must(t, err)

	m, err := Move(ns, []Device{{"data0", "net1"}})
	must(t, err)
	m.Close()
	shown := inside("addr", "show", "dev", "net1")
	contains(t, shown, "mtu 1400", "02:00:00:00:00:07", "LOWER_UP", ",UP",
		"inet 192.0.2.7/24 brd 192.0.2.255 scope global net1", "inet 192.0.2.9 peer 198.51.100.1/32", "inet6 2001:db8::7/64",
		fmt.Sprintf("%d: net1", before.index))
	lacks(t, shown, "127.0.0.33", "192.0.2.8/", "data0:a")
	lacks(t, ip(t, "link"), "data0@")
}

// home returns a connection to the network namespace of the tests.
func home(t *testing.T) conn {
	t.Helper()
	c, err := rtnetlink.Dial()
	must(t, err)
	t.Cleanup(c.Close)
	return conn{c}
}

func TestAnIndexThatIsTakenIsReplaced(t *testing.T) {
	ns, inside := namespace(t)
	makeDevice(t, "data0")
	d, err := home(t).find("data0")
	must(t, err)
	inside("link", "add", "taken", "index", fmt.Sprint(d.index), "type", "veth", "peer", "name", "takenp")
	m, err := Move(ns, []Device{{"data0", "data0"}})
	must(t, err)
	contains(t, inside("link", "show", "dev", "data0"), "02:00:00:00:00:07", ",UP")
	must(t, m.Undo())
	contains(t, ip(t, "link", "show", "dev", "data0"), fmt.Sprintf("%d: data0", d.index))
}

func TestTheKernelFillsInATemplate(t *testing.T) {
	ns, inside := namespace(t)
	makeDevice(t, "data0")
	makeDevice(t, "data1")
	m, err := Move(ns, []Device{{"data0", "net%d"}, {"data1", "net%d"}})
	must(t, err)
	m.Close()
	if n := strings.Count(inside("-o", "link"), ": net"); n != 2 {
		t.Errorf("%d devices are named by the template:\n%s", n, inside("-o", "link"))
	}
}

func TestAFailedMoveChangesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		devices []Device
		want    string
	}{
		"a device that does not exist":     {[]Device{{"data0", "net0"}, {"absent", "net1"}}, "there is no network device absent on the host"},
		"a name that is taken":             {[]Device{{"data0", "net0"}, {"data1", "lo"}}, "has a network device lo already"},
		"two devices of one name":          {[]Device{{"data0", "net0"}, {"data1", "net0"}}, "data1"},
		"a device that belongs to its own": {[]Device{{"data0", "net0"}, {"lo", "net1"}}, "move the network device lo"},
	} {
		t.Run(name, func(t *testing.T) {
			ns, inside := namespace(t)
			makeDevice(t, "data0")
			makeDevice(t, "data1")
			ip(t, "link", "set", "lo", "up")
			ip(t, "link", "set", "data0", "up")
			ip(t, "addr", "add", "192.0.2.7/24", "dev", "data0")
			before := ip(t, "addr")
			_, err := Move(ns, c.devices)
			if err == nil {
				t.Fatal("the move was successful")
			}
			contains(t, err.Error(), c.want)
			if after := ip(t, "addr"); settled(after) != settled(before) {
				t.Errorf("the host's devices were\n%s\nand are\n%s", before, after)
			}
			lacks(t, inside("link"), "net0", "net1")
		})
	}
}

// settled returns the output of ip without what changes by itself when a device comes up.
func settled(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "inet6 fe80") && !strings.Contains(line, "valid_lft") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestUndoBringsDevicesBackFromANamespaceThatHasEnded(t *testing.T) {
	ns, _ := namespace(t)
	makeDevice(t, "data0")
	ip(t, "addr", "add", "192.0.2.7/24", "dev", "data0")
	m, err := Move(ns, []Device{{"data0", "net1"}})
	must(t, err)
	ns.Close()
	must(t, m.Undo())
	shown := ip(t, "addr", "show", "dev", "data0")
	contains(t, shown, "inet 192.0.2.7/24", "state DOWN") // as it was
	must(t, m.Undo())                                     // again has no effect
}
