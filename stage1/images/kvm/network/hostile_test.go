package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/rtnetlink"
)

// batch executes many lines of ip at once.
func (s space) batch(lines []string) {
	s.t.Helper()
	cmd := exec.Command("nsenter", "--net="+s.path(), "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("ip -batch: %v: %s", err, out)
	}
}

func times(n int, format string) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf(format, i/250, i%250+1))
	}
	return lines
}

func TestANamespaceThatHasTooMuchIsRefusedAndTheMachineGoesOn(t *testing.T) {
	var links []string
	for i := range maxLinks / 2 {
		links = append(links, fmt.Sprintf("link add a%d up type veth peer name b%d", i, i), fmt.Sprintf("link set b%d up", i))
	}
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"links":       {links, "more than 16 links"},
		"addresses":   {times(maxAddresses, "addr add 10.0.%d.%d/32 dev eth0"), "more than 256 addresses"},
		"routes":      {times(maxRoutes, "route add 10.0.%d.%d/32 dev eth0"), "more than 1024 routes"},
		"IPv6 routes": {times(maxRoutes, "route add 2001:db8:%d::%d/128 dev eth0"), "more than 1024 routes"},
		"neighbours":  {times(maxNeighbours+1, "neigh add 10.0.%d.%d lladdr 02:00:00:00:00:99 dev eth0 nud permanent"), "more than 1024 permanent neighbours"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, clients := newPod(t)
			m := newMachine(t, pod)
			m.take()
			m.listen(":80")
			pod.batch(c.lines)
			_, _, err := m.Look()
			if err == nil {
				t.Fatal("it is accepted")
			}
			contains(t, err.Error(), c.want)
			clients.reach("192.0.2.7:80")
		})
	}
}

// The kernel accepts each byte in a name except / : % and white space.
func TestLinksWithHostileNamesAreRefusedByName(t *testing.T) {
	for _, name := range []string{"a\x1b[31mb", "a\xff", "ä", "a\x01", "a\x7f"} {
		t.Run(fmt.Sprintf("%q", name), func(t *testing.T) {
			pod, _ := newPod(t)
			pod.run("ip", "link", "add", name, "type", "veth", "peer", "name", "peer0")
			pod.run("ip", "link", "set", name, "up")
			m := newMachine(t, pod)
			refused := m.take()
			if len(refused) != 1 || !strings.Contains(refused[0], fmt.Sprintf("the link %+q: the name of a link", name)) {
				t.Errorf("refused are %q", refused)
			}
			lacks(t, strings.Join(refused, ""), name)
			if len(m.nics) != 1 {
				t.Errorf("the machine has %d NICs", len(m.nics))
			}
		})
	}
}

func TestWhatAMachineCannotHaveIsRefusedByName(t *testing.T) {
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"a bridge's port":          {[]string{"link add name br0 type bridge", "link set peer0 master br0"}, `the link "peer0" is a port of another link`},
		"a macvlan on a link":      {[]string{"link add link odd name mv0 type macvlan", "link set mv0 up"}, `the link "mv0" is made on another link`},
		"a tunnel":                 {[]string{"tuntap add dev tun9 mode tun", "link set tun9 up"}, `the link "tun9" is not Ethernet`},
		"a tap":                    {[]string{"tuntap add dev tap9 mode tap", "link set tap9 up"}, `the link "tap9" is a tap of another process`},
		"one address of two links": {[]string{"link set odd address 02:00:00:00:00:07", "link set peer0 address 02:00:00:00:00:07"}, `has the hardware address of another link, 02:00:00:00:00:07`},
		"a rule":                   {[]string{"rule add from 192.0.2.7 table 100 priority 77"}, "the routing rule 77"},
		"a rule of IPv6":           {[]string{"-6 rule add from 2001:db8::7 table 100 priority 78"}, "the routing rule 78"},
		"a rule like the first":    {[]string{"rule add to 192.0.2.9 table local priority 0"}, "the routing rule 0"},
		"a route for a tos":        {[]string{"route add 10.0.0.0/8 tos 8 dev eth0"}, "the route 10.0.0.0/8, which is for some packets only"},
		"a route for a source":     {[]string{"route add 2001:db8:9::/48 from 2001:db8::/64 dev eth0"}, "the route 2001:db8:9::/48, which is for some packets only"},
		"a local route":            {[]string{"route add local 10.0.0.0/8 dev eth0 table main"}, "the route 10.0.0.0/8 of the type 2"},
		"a mapped address":         {[]string{"addr add ::ffff:192.0.2.9/128 dev eth0 nodad"}, "the address ::ffff:192.0.2.9/128 of the link eth0"},
		"a neighbour without one":  {[]string{"neigh add 192.0.2.44 lladdr 01:00:5e:00:00:01 dev eth0 nud permanent"}, "the neighbour 192.0.2.44 of the link eth0"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, clients := newPod(t)
			pod.ip("link add odd up type veth peer name peer0")
			pod.ip("link set peer0 up")
			for _, line := range c.lines {
				if strings.HasPrefix(line, "-6 ") {
					pod.ip(line)
				} else {
					pod.batch([]string{line})
				}
			}
			m := newMachine(t, pod)
			refused := m.take()
			if !slices.ContainsFunc(refused, func(r string) bool { return strings.Contains(r, c.want) }) {
				t.Errorf("refused are %q", refused)
			}
			m.listen(":80")
			clients.reach("192.0.2.7:80")
		})
	}
}

func TestLinksThatAreDownAreLeftAlone(t *testing.T) {
	pod, _ := newPod(t)
	pod.ip("link add odd type veth peer name peer0")
	m := newMachine(t, pod)
	if refused := m.take(); len(refused) > 0 || len(m.nics) != 1 {
		t.Errorf("refused are %q, and there are %d NICs", refused, len(m.nics))
	}
}

func TestASecondMachineDoesNotTakeALinkFromTheFirst(t *testing.T) {
	pod, clients := newPod(t)
	first, second := newMachine(t, pod), newMachine(t, pod)
	first.take()
	first.listen(":80")
	c, refused := second.look()
	if len(refused) != 1 || !strings.Contains(refused[0], `"tap0" is a tap of another process`) {
		t.Errorf("refused are %q", refused)
	}
	if added, _, err := second.Follow(c); err == nil || !strings.Contains(err.Error(), "the link eth0: another machine has taken it over") {
		t.Errorf("%d taps, and the error %v", len(added), err)
	}
	lacks(t, pod.ip("link"), "tap1")
	must(t, second.Network.Close())
	clients.reach("192.0.2.7:80")
}

// A machine that is killed leaves its filter. So does one whose tap was removed by another process.
func TestAMachineReplacesTheFilterOfOneThatWasKilled(t *testing.T) {
	for name, kill := range map[string]func(pod space, m *machine){
		"killed":             func(_ space, m *machine) {},
		"without its tap":    func(pod space, m *machine) { pod.ip("link del tap0") },
		"with other filters": func(pod space, m *machine) { pod.run(foreign...) },
	} {
		t.Run(name, func(t *testing.T) {
			pod, clients := newPod(t)
			first := newMachine(t, pod)
			first.take()
			kill(pod, first)
			for tap := range first.nics {
				first.unplug(tap) // closes the descriptors, and that is all that the end of a process does
			}
			contains(t, pod.run("tc", "filter", "show", "dev", "eth0", "ingress"), "mirred")
			second := newMachine(t, pod)
			second.take()
			second.listen(":80")
			clients.reach("192.0.2.7:80")
		})
	}
}

// foreign adds a filter of another program, which lets frames pass.
var foreign = []string{"tc", "filter", "add", "dev", "eth0", "ingress", "prio", "5", "protocol", "all", "u32", "match", "u32", "0xffffffff", "0xffffffff", "flowid", "1:1"}

func TestTheEndOfAMachineLeavesNothing(t *testing.T) {
	pod, clients := newPod(t)
	m := newMachine(t, pod)
	m.take()
	contains(t, pod.ip("link show eth0"), "ALLMULTI") // its multicast groups are the machine's
	pod.run(foreign...)
	for tap := range m.nics {
		m.unplug(tap)
	}
	must(t, m.Network.Close())
	lacks(t, pod.ip("link show eth0"), "ALLMULTI")
	lacks(t, pod.ip("link"), "tap")
	shown := pod.run("tc", "filter", "show", "dev", "eth0", "ingress")
	lacks(t, shown, "mirred")
	contains(t, shown, "pref 5")
	pod.listen(":80") // the namespace has its addresses again
	clients.reach("192.0.2.7:80")
	must(t, m.Network.Close())
}

// ingress and clsact exclude each other, and a program may have added either.
func TestTheQdiscOfAnotherProgramIsUsed(t *testing.T) {
	for _, kind := range []string{"ingress", "clsact"} {
		t.Run(kind, func(t *testing.T) {
			pod, clients := newPod(t)
			pod.run("tc", "qdisc", "add", "dev", "eth0", kind)
			m := newMachine(t, pod)
			m.take()
			m.listen(":80")
			clients.reach("192.0.2.7:80")
		})
	}
}

// A process of the namespace changes it without an end.
func TestANamespaceThatChangesAllTheTimeDoesNotHoldLookUp(t *testing.T) {
	pod, _ := newPod(t)
	pod.batch(times(maxRoutes/2, "route add 10.0.%d.%d/32 dev eth0"))
	m := newMachine(t, pod)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		for ctx.Err() == nil {
			for _, verb := range []string{"add", "del"} {
				_ = exec.Command("nsenter", "--net="+pod.path(), "ip", "route", verb, "10.9.9.9/32", "dev", "eth0").Run()
			}
		}
	})
	done := make(chan error)
	go func() {
		_, _, err := m.Look()
		done <- err
	}()
	if err := wait.For(t, "the end of Look", done); err != nil {
		contains(t, err.Error(), rtnetlink.ErrChanged.Error())
	}
}

func TestTheHostsNamespaceIsRefused(t *testing.T) {
	s := newSpace(t) // skips the test without root
	if n, err := Open("/proc/self/ns/net"); !errors.Is(err, ErrHost) {
		t.Errorf("%v, %v", n, err)
	}
	if _, err := Open("/proc/self/ns/absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a namespace that is not there: %v", err)
	}
	n, err := Open("/proc/self/ns/uts")
	must(t, err)
	if _, _, err := n.Look(); err == nil {
		t.Error("a namespace of another kind is read")
	}
	must(t, n.Close())
	n, err = Open(s.path())
	must(t, err)
	if same, err := n.Is(s.path()); err != nil || !same {
		t.Errorf("it is another one: %v", err)
	}
	must(t, n.Close())
}

func TestANamespaceIsMadeForLinksThatComeLater(t *testing.T) {
	clients := newSpace(t)
	n, err := Make()
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	if same, err := n.Is("/proc/self/ns/net"); err != nil || same {
		t.Errorf("it is the host's: %v", err)
	}
	pod := space{File: n.namespace, t: t}
	must(t, n.Do(func() error {
		if same, err := n.Is("/proc/thread-self/ns/net"); err != nil || !same {
			t.Errorf("Do is somewhere else: %v", err)
		}
		return nil
	}))
	m := newMachine(t, pod)
	m.take()
	pod.attach(clients, "eth0", "out0", inside, outside)
	m.take()
	m.listen(":80")
	clients.reach("192.0.2.7:80")
}
