package network

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

const (
	inside  = "192.0.2.7/24 2001:db8::7/64"
	outside = "192.0.2.1/24 2001:db8::1/64"
)

// newPod makes a namespace with the link eth0, and the namespace of its clients.
func newPod(t *testing.T) (pod, clients space) {
	t.Helper()
	pod, clients = newSpace(t), newSpace(t)
	pod.ip("link set lo up")
	pod.attach(clients, "eth0", "out0", inside, outside)
	pod.ip("route add default via 192.0.2.1")
	pod.ip("route add default via 2001:db8::1")
	return pod, clients
}

func TestThePodsAddressesAreTheMachines(t *testing.T) {
	pod, clients := newPod(t)
	pod.ip("neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
	pod.ip("neigh add 2001:db8::99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
	m := newMachine(t, pod)
	if refused := m.take(); len(refused) > 0 {
		t.Errorf("%q are refused", refused)
	}
	m.same(pod, "-o -4 addr")
	m.same(pod, "-4 route")
	m.same(pod, "-6 route")
	m.same(pod, "neigh show nud permanent")
	contains(t, m.ip("link show dev eth0"), "mtu 1400", ",UP")
	lacks(t, pod.ip("addr show dev tap0"), "inet") // which would send frames to the machine
	contains(t, m.ip("addr show dev eth0"), "inet6 2001:db8::7/64 scope global", "inet6 fe80::", "inet 192.0.2.7/24")

	m.listen(":80")
	clients.reach("192.0.2.7:80")
	clients.reach("[2001:db8::7]:80")
	clients.listen(":81")
	m.reach("192.0.2.1:81")
	m.reach("[2001:db8::1]:81")
	m.reach("127.0.0.1:80") // lo is up
}

// A tap passes frames of any size, whatever its own MTU is.
func TestLargeFramesPass(t *testing.T) {
	pod, clients := newPod(t)
	pod.ip("link set eth0 mtu 9000")
	clients.ip("link set out0 mtu 9000")
	m := newMachine(t, pod)
	m.take()
	var server net.PacketConn
	m.do(func() (err error) {
		server, err = net.ListenPacket("udp", ":53")
		return err
	})
	defer server.Close()
	clients.do(func() error {
		client, err := net.Dial("udp", "192.0.2.7:53")
		if err != nil {
			return err
		}
		defer client.Close()
		_, err = client.Write(make([]byte, 8900)) // one frame
		return err
	})
	got := make(chan int)
	go func() {
		n, _, _ := server.ReadFrom(make([]byte, 1<<16))
		got <- n
	}()
	if n := wait.For(t, "the packet", got); n != 8900 {
		t.Errorf("the machine has received %d bytes", n)
	}
	contains(t, pod.ip("link show dev tap0"), "mtu 1500")
	clients.listen(":80")
	m.reach("192.0.2.1:80")
}

// A client that sends to the pod's address before the machine has it gets its answer when it has, whether the client
// has to ask for the hardware address first or knows it.
func TestPacketsAreKeptUntilTheMachineHasTheAddress(t *testing.T) {
	for _, address := range []string{"192.0.2.7", "2001:db8::7"} {
		for _, knows := range []bool{false, true} {
			t.Run(fmt.Sprint(address, " is known: ", knows), func(t *testing.T) {
				pod, clients := newPod(t)
				if knows {
					mac := strings.Fields(pod.ip("-brief link show dev eth0"))[2]
					clients.ip("neigh replace " + address + " lladdr " + mac + " dev out0 nud permanent")
				} else {
					for _, family := range []string{"ipv4", "ipv6"} { // a client that waits for long
						clients.sysctl(family+"/neigh/out0/mcast_solicit", "1000")
					}
				}
				m := newMachine(t, pod)
				var server net.PacketConn
				m.do(func() (err error) {
					server, err = net.ListenPacket("udp", ":53")
					return err
				})
				t.Cleanup(func() { server.Close() })
				c, _ := m.look()
				m.follow(c) // from here on a frame that reaches the tap is lost, because the NIC is down
				clients.do(func() error {
					client, err := net.Dial("udp", net.JoinHostPort(address, "53"))
					if err != nil {
						return err
					}
					defer client.Close()
					for _, text := range []string{"first", strings.Repeat("second", 200)} {
						if _, err = client.Write([]byte(text)); err != nil {
							return err
						}
					}
					return nil
				})
				m.apply(c)
				got := make(chan string, 2)
				go func() {
					defer close(got)
					for range 2 {
						b := make([]byte, 2000)
						n, _, err := server.ReadFrom(b)
						if err != nil {
							return
						}
						got <- string(b[:n])
					}
				}()
				for _, want := range []string{"first", strings.Repeat("second", 200)} {
					if text := wait.For(t, "a packet", got); text != want {
						t.Errorf("the machine has received %q", text)
					}
				}
				if links := pod.ip("-brief link"); strings.Count(links, "tap") != 1 {
					t.Errorf("the tap for held frames is left: %s", links)
				}
			})
		}
	}
}

func TestNeighboursLearnWhereTheAddressIsNow(t *testing.T) {
	for _, address := range []string{"192.0.2.7", "2001:db8::7"} {
		t.Run(address, func(t *testing.T) {
			pod, clients := newPod(t)
			m := newMachine(t, pod)
			c, _ := m.look()
			clients.run("ip", "neigh", "replace", address, "lladdr", "02:00:00:00:00:99", "dev", "out0", "nud", "stale")
			m.follow(c)
			m.apply(c)
			want := c.Links[0].MAC.String()
			wait.Observe(t, "the neighbour's new address", func() (bool, string) {
				shown := clients.run("ip", "neigh", "show", address)
				return strings.Contains(shown, want), shown
			})
		})
	}
}

func TestANamespaceWithoutLinksIsAMachineWithLo(t *testing.T) {
	pod := newSpace(t)
	pod.ip("link set lo up")
	m := newMachine(t, pod)
	m.take()
	if len(m.nics) > 0 {
		t.Errorf("the machine has %d NICs", len(m.nics))
	}
	m.listen("127.0.0.1:80")
	m.reach("127.0.0.1:80")
}

func TestLinksComeAndGo(t *testing.T) {
	pod, clients := newPod(t)
	m := newMachine(t, pod)
	m.take()
	m.listen(":80")
	clients.reach("192.0.2.7:80")

	others := newSpace(t) // the clients of the second link
	pod.attach(others, "net1", "out0", "198.51.100.7/24 2001:db8:1::7/64", "198.51.100.1/24 2001:db8:1::1/64")
	m.take()
	m.same(pod, "-4 route")
	m.same(pod, "-6 route")
	clients.reach("192.0.2.7:80")
	others.reach("198.51.100.7:80")
	others.reach("[2001:db8:1::7]:80")
	again := len(m.nics)
	m.take() // making the taps has changed the namespace, so there is another call
	if len(m.nics) != 2 || again != 2 {
		t.Errorf("the machine has %d and then %d NICs", again, len(m.nics))
	}

	others.ip("link del out0")
	m.take()
	lacks(t, m.ip("addr"), "net1")
	lacks(t, pod.ip("link"), "tap1")
	m.same(pod, "-4 route")
	clients.reach("192.0.2.7:80")

	clients.ip("link del out0")
	m.take()
	lacks(t, m.ip("addr"), "eth0")
	lacks(t, pod.ip("link"), "tap")
}

func TestAChangeOfTheNamespaceReachesTheMachine(t *testing.T) {
	pod, clients := newPod(t)
	pod.ip("addr add 192.0.2.8/24 dev eth0")
	pod.ip("route add 203.0.113.0/24 via 192.0.2.1")
	m := newMachine(t, pod)
	m.take()
	m.listen(":80")
	clients.reach("192.0.2.8:80")

	pod.ip("addr del 192.0.2.7/24 dev eth0") // with it go the routes of its subnet, and the other address
	pod.ip("addr add 192.0.2.9/24 dev eth0")
	pod.ip("addr del 2001:db8::7/64 dev eth0")
	pod.ip("addr add 2001:db8::9/64 dev eth0 nodad")
	pod.ip("route replace default via 192.0.2.2")
	pod.ip("route add unreachable 203.0.113.0/25")
	pod.ip("link set eth0 mtu 1300")
	m.take()
	m.same(pod, "-o -4 addr")
	m.same(pod, "-4 route")
	m.same(pod, "-6 route")
	contains(t, m.ip("addr show dev eth0"), "mtu 1300", "2001:db8::9/64")
	lacks(t, m.ip("addr show dev eth0"), "2001:db8::7/")
	clients.reach("192.0.2.9:80")
	clients.reach("[2001:db8::9]:80")

	pod.ip("link set eth0 down")
	pod.ip("link set eth0 name front")
	pod.ip("link set front up")
	m.take()
	m.same(pod, "-4 route")
	lacks(t, m.ip("link"), "eth0")
	clients.reach("192.0.2.9:80")

	pod.ip("link set front down")
	pod.ip("link set front address 02:00:00:00:00:44")
	pod.ip("link set front up")
	m.take()
	contains(t, m.ip("link show dev front"), "02:00:00:00:00:44")
	clients.reach("192.0.2.9:80")
}

func TestRoutesOfAllKindsAreTakenOver(t *testing.T) {
	pod, clients := newPod(t)
	pod.attach(clients, "net1", "out1", "198.51.100.7/24 2001:db8:1::7/64", "198.51.100.1/24 2001:db8:1::1/64")
	pod.ip("addr add 192.0.2.20 peer 192.0.2.21 dev eth0")
	pod.ip("addr add 2001:db8:2::7 peer 2001:db8:2::8 dev eth0 nodad")
	for _, r := range []string{
		"10.1.0.0/16 via 192.0.2.1 src 192.0.2.20 mtu 1000 advmss 900 metric 7",
		"10.1.0.0/16 dev net1 metric 8",
		"10.2.0.0/16 nexthop via 192.0.2.1 dev eth0 weight 3 nexthop via 198.51.100.1 dev net1 weight 1",
		"10.3.0.0/16 via 10.99.0.1 dev eth0 onlink",
		"10.4.0.0/16 via inet6 2001:db8::1 dev eth0",
		"blackhole 10.5.0.0/16", "prohibit 10.6.0.0/16", "throw 10.7.0.0/16",
		"2001:db8:a::/48 via 2001:db8::1 metric 5",
		"2001:db8:b::/48 nexthop via 2001:db8::1 dev eth0 nexthop via 2001:db8:1::1 dev net1",
		"unreachable 2001:db8:c::/48",
	} {
		pod.ip("route add " + r)
	}
	// As CNI's plugin ptp does.
	pod.ip("route del 198.51.100.0/24 dev net1")
	pod.ip("route add 198.51.100.1 dev net1 scope link")
	pod.ip("route add 198.51.100.0/24 via 198.51.100.1 src 198.51.100.7")
	m := newMachine(t, pod)
	if refused := m.take(); len(refused) > 0 {
		t.Errorf("%q are refused", refused)
	}
	m.same(pod, "-4 route")
	m.same(pod, "-6 route")
	m.same(pod, "-o -4 addr")
	contains(t, m.ip("-6 addr show dev eth0"), "2001:db8:2::7 peer 2001:db8:2::8/128")
	m.listen(":80")
	clients.reach("198.51.100.7:80")

	pod.ip("route flush 10.0.0.0/8")
	pod.ip("route flush root 10.0.0.0/8")
	pod.ip("-6 route del 2001:db8:b::/48")
	m.take()
	lacks(t, pod.ip("-4 route"), "10.2.0.0") // or the test shows nothing
	m.same(pod, "-4 route")
	m.same(pod, "-6 route")
}

func TestSettingsOfALinkAreTakenOver(t *testing.T) {
	pod, _ := newPod(t)
	others := newSpace(t)
	pod.attach(others, "net1", "out1", "198.51.100.7/24", "198.51.100.1/24")
	pod.ip("link set eth0 arp off")
	pod.sysctl("ipv6/conf/eth0/accept_ra", "2")
	pod.sysctl("ipv6/conf/net1/disable_ipv6", "1")
	m := newMachine(t, pod)
	m.take()
	contains(t, m.ip("link show dev eth0"), "NOARP")
	lacks(t, m.ip("link show dev net1"), "NOARP")
	lacks(t, m.ip("addr show dev net1"), "inet6")
	for path, want := range map[string]string{"eth0/accept_ra": "2", "eth0/disable_ipv6": "0", "net1/disable_ipv6": "1"} {
		if got := m.read("ipv6/conf/" + path); got != want {
			t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
	pod.ip("link set eth0 arp on")
	m.take()
	lacks(t, m.ip("link show dev eth0"), "NOARP")
}

// The kernel of a machine names NICs in the order in which it finds them.
func TestNICsGetTheNamesOfTheirLinksInAnyOrder(t *testing.T) {
	pod, clients := newPod(t)
	pod.attach(clients, "tap0", "out1", "198.51.100.7/24", "198.51.100.1/24")
	pod.attach(clients, "tap1", "out2", "203.0.113.7/24", "203.0.113.1/24")
	m := newMachine(t, pod)
	c, _ := m.look()
	c.Links[0], c.Links[2] = c.Links[2], c.Links[0] // the kernel's tap0 is to be eth0 and so on
	m.follow(c)
	m.apply(c)
	m.listen(":80")
	clients.reach("192.0.2.7:80")
	clients.reach("198.51.100.7:80")
	clients.reach("203.0.113.7:80")
	for _, l := range c.Links {
		contains(t, m.ip("link show dev "+l.Name), l.MAC.String())
	}
}

func TestAMissingNICIsNamedAndNothingIsChanged(t *testing.T) {
	pod, _ := newPod(t)
	m := newMachine(t, pod)
	c, _ := m.look()
	err := m.Apply(ended(t), c)
	if err == nil {
		t.Fatal("there is no error")
	}
	contains(t, err.Error(), "eth0", c.Links[0].MAC.String(), "context canceled")
	lacks(t, m.ip("link"), "UP")
}

func TestANICThatComesLateIsWaitedFor(t *testing.T) {
	pod, clients := newPod(t)
	m := newMachine(t, pod)
	c, _ := m.look()
	applied := make(chan error)
	go func() { applied <- m.Apply(t.Context(), c) }()
	wait.Blocked(t, "network.await", 1)
	m.follow(c)
	must(t, wait.For(t, "the end of Apply", applied))
	m.release()
	m.listen(":80")
	clients.reach("192.0.2.7:80")
}

// Each step that fails is named, and all others are made.
func TestFailuresInTheMachineAreNamed(t *testing.T) {
	pod, clients := newPod(t)
	m := newMachine(t, pod)
	c, _ := m.look()
	m.follow(c)
	c.Routes = append(c.Routes, c.Routes[len(c.Routes)-1], c.Routes[0])
	bad := &c.Routes[len(c.Routes)-1]
	bad.Destination, bad.Hops = netip.MustParsePrefix("10.0.0.0/8"), []Hop{{Link: "eth0", Gateway: netip.MustParseAddr("198.51.100.1")}}
	c.Links[0].Addresses = append(c.Links[0].Addresses, Address{Prefix: netip.MustParsePrefix("224.0.0.1/24")}, Address{Prefix: netip.MustParsePrefix("ff02::1/64")})
	err := m.Apply(t.Context(), c)
	if err == nil {
		t.Fatal("there is no error")
	}
	contains(t, err.Error(), "add the route 10.0.0.0/8: ", "the link eth0: add the address ff02::1/64: ")
	m.release()
	m.listen(":80")
	clients.reach("192.0.2.7:80")
}
