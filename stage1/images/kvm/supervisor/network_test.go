package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/channel"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/network"
)

// slots is a machine of tests that gets NICs.
type slots struct {
	mu   sync.Mutex
	nics map[machine.Device]string // their hardware addresses
	log  []string
	fail error
}

func (s *slots) AddNIC(_ context.Context, n machine.NIC) (machine.Device, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return "", s.fail
	}
	if _, err := n.Tap.Stat(); err != nil {
		return "", err
	}
	d := machine.Device(fmt.Sprint("nic", len(s.log)))
	s.nics[d] = n.MAC.String()
	s.log = append(s.log, "add "+n.MAC.String())
	return d, nil
}

func (s *slots) RemoveDevice(_ context.Context, d machine.Device) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, "remove "+s.nics[d])
	delete(s.nics, d)
	return nil
}

func (s *slots) did() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, ", ")
}

// netns makes a network namespace with the link eth0, and returns its path. reaper is that of the test's
// supervisor, if it has one.
func netns(t *testing.T, reaper *proc.Children) string {
	t.Helper()
	var f *os.File
	err := proc.OnThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	ip(t, reaper, path, "link add eth0 address 02:00:00:00:00:07 up type veth peer name peer0")
	ip(t, reaper, path, "addr add 192.0.2.7/24 dev eth0")
	return path
}

func ip(t *testing.T, reaper *proc.Children, netns, line string) {
	t.Helper()
	if reaper != nil {
		defer reaper.Expect()() // ip is not the supervisor's
	}
	if out, err := exec.Command("nsenter", append([]string{"--net=" + netns, "ip"}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", line, err, out)
	}
}

// configs makes the guest keep the networks that it is told of, and fail with a text.
func (w *world) configs(failure *string) func() []network.Config {
	var mu sync.Mutex
	var got []network.Config
	w.guest.on(abi.Network, func(s *channel.Stream, h *channel.Header) {
		c, err := network.ParseConfig(h.Network)
		if err != nil {
			say(s, "error", err.Error(), "exit", "1")
			return
		}
		mu.Lock()
		got = append(got, c)
		text := *failure
		mu.Unlock()
		if text != "" {
			say(s, "error", text, "exit", "1")
			return
		}
		say(s, "exit", "0")
	})
	return func() []network.Config {
		mu.Lock()
		defer mu.Unlock()
		return got
	}
}

// in returns a spec with a network namespace.
func in(path string) abi.RawJSON {
	return abi.RawJSON(strings.Replace(spec(), `{"type":"network"}`, `{"type":"network","path":"`+path+`"}`, 1))
}

func TestTheMachineFollowsItsNetworkNamespace(t *testing.T) {
	w, s := newWorld(t), &slots{nics: map[machine.Device]string{}}
	w.s.NICs = s
	failure := ""
	configs := w.configs(&failure)
	path := netns(t, w.s.Children)
	if err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: in(path)}, null(t)); err != nil {
		t.Fatal(err)
	}
	if got := s.did(); got != "add 02:00:00:00:00:07" {
		t.Errorf("the machine: %s", got)
	}
	if got := configs(); len(got) != 1 || got[0].Links[0].Addresses[0].Prefix.String() != "192.0.2.7/24" {
		t.Errorf("the guest was told %v", got)
	}
	proxy, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", w.s.apps["a"].main.proxy.PID()))
	own, err2 := os.Stat(path)
	if err != nil || err2 != nil || !os.SameFile(proxy, own) {
		t.Errorf("the proxy is in another network namespace: %v %v", err, err2)
	}

	call := func(e abi.Entrypoint) error {
		return w.call(t.Context(), &abi.Request{Entrypoint: e, App: "a"}, [3]*os.File{})
	}
	if err := call(abi.AppStart); err != nil || len(configs()) != 1 {
		t.Errorf("a start without a change: %v, %v", err, configs())
	}
	ip(t, w.s.Children, path, "link add net1 address 02:00:00:00:00:08 up type veth peer name peer1")
	if err := call(abi.Network); err != nil {
		t.Error(err)
	}
	ip(t, w.s.Children, path, "link del peer0")
	failure = "the guest has no room"
	if err := call(abi.Network); err == nil || !strings.Contains(err.Error(), failure) {
		t.Errorf("%v, not the guest's error", err)
	}
	failure = ""
	if err := call(abi.Network); err != nil { // tells the guest again
		t.Error(err)
	}
	if got := s.did(); got != "add 02:00:00:00:00:07, add 02:00:00:00:00:08, remove 02:00:00:00:00:07" {
		t.Errorf("the machine: %s", got)
	}
	if got := configs(); len(got) != 4 || len(got[1].Links) != 2 || len(got[3].Links) != 1 || got[3].Links[0].Name != "net1" {
		t.Errorf("the guest was told %v", got)
	}

	other := netns(t, w.s.Children)
	err = w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "b", Spec: in(other)}, null(t))
	if serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), other+" is another network namespace than that of the machine") {
		t.Errorf("an app of another network namespace: %v", err)
	}
	w.add("c") // without a path it is in the machine's
}

func TestAppsWithoutAPathShareANewNamespace(t *testing.T) {
	w := newWorld(t)
	a, b := w.add("a"), w.add("b")
	var ns [3]os.FileInfo
	for i, path := range []string{fmt.Sprintf("/proc/%d/ns/net", a.proxy.PID()), fmt.Sprintf("/proc/%d/ns/net", b.proxy.PID()), "/proc/self/ns/net"} {
		var err error
		if ns[i], err = os.Stat(path); err != nil {
			t.Fatal(err)
		}
	}
	if !os.SameFile(ns[0], ns[1]) || os.SameFile(ns[0], ns[2]) {
		t.Error("the proxies are not in one namespace, or in the host's")
	}
}

func TestNetworksThatAMachineCannotHaveAreRefused(t *testing.T) {
	odd := netns(t, nil)
	ip(t, nil, odd, "tuntap add dev tun9 mode tun")
	ip(t, nil, odd, "link set tun9 up")
	for path, want := range map[string]string{
		"/proc/self/ns/net": "the host's network",
		odd:                 `the link "tun9" is not Ethernet`,
	} {
		if n, err := NewNetwork(path); serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), want) {
			t.Errorf("run: %v, %v", n, err)
		}
		// A process has one reaper at a time, so a world ends before the next one begins.
		t.Run(want, func(t *testing.T) {
			w, s := newWorld(t), &slots{nics: map[machine.Device]string{}}
			w.s.NICs = s
			err := w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: in(path)}, null(t))
			if serve.CodeOf(err) != abi.ExitNotImplemented || !strings.Contains(err.Error(), want) {
				t.Errorf("app/add: %v", err)
			}
			w.add("b") // the pod goes on
			if got := s.did(); got != "" {
				t.Errorf("the machine: %s", got)
			}
		})
	}
}

func TestANICThatTheMachineRefusesIsTriedAgain(t *testing.T) {
	w, s := newWorld(t), &slots{nics: map[machine.Device]string{}, fail: errors.New("no port is free")}
	w.s.NICs = s
	failure := ""
	configs := w.configs(&failure)
	path := netns(t, w.s.Children)
	add := func() error {
		return w.call(t.Context(), &abi.Request{Entrypoint: abi.AppAdd, App: "a", Spec: in(path)}, null(t))
	}
	if err := add(); err == nil || !strings.Contains(err.Error(), "no port is free") {
		t.Errorf("%v, not the machine's error", err)
	}
	if len(configs()) != 0 {
		t.Errorf("the guest was told %v", configs())
	}
	s.mu.Lock()
	s.fail = nil
	s.mu.Unlock()
	if err := add(); err != nil {
		t.Fatal(err)
	}
	if got := s.did(); got != "add 02:00:00:00:00:07" || len(configs()) != 1 {
		t.Errorf("the machine: %s; the guest was told %v", got, configs())
	}
}
