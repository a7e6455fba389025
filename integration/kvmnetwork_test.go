package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/typeurl/v2"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// netns is the path of a network namespace.
type netns string

// newNetns makes a network namespace for a test.
func newNetns(t *testing.T) netns {
	t.Helper()
	holder := exec.Command("sleep", "100000")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	return netns(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid))
}

// command is a program in the namespace, with an input.
func (n netns) command(input, line string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--net=" + string(n)}, strings.Fields(line)...)...)
	cmd.Stdin = strings.NewReader(input)
	return cmd
}

func (n netns) run(t *testing.T, line string) {
	t.Helper()
	if out, err := n.command("", line).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
}

// attach makes a link of the namespace as CNI's plugins do. Its other end, in the namespace clients,
// has the addresses that end with 1.
func (n netns) attach(t *testing.T, clients netns, link, subnet4, subnet6 string) {
	t.Helper()
	clients.run(t, "ip link add "+link+" mtu 1400 type veth peer name "+link+" mtu 1400 netns "+string(n))
	for end, number := range map[netns]string{clients: "1", n: "7"} {
		end.run(t, "ip addr add "+subnet4+number+"/24 dev "+link)
		end.run(t, "ip addr add "+subnet6+number+"/64 dev "+link+" nodad")
		end.run(t, "ip link set "+link+" up")
	}
}

// expectEcho waits until a server at an address sends the text of a client in the namespace back. The
// text takes many frames of the largest size.
func (n netns) expectEcho(t *testing.T, address string) {
	t.Helper()
	text := strings.Repeat("hello ", 50_000)
	wait.Observe(t, "an echo from "+address, func() (bool, string) {
		out, err := n.command(text, "busybox nc -w 5 "+address+" 80").CombinedOutput()
		return string(out) == text, fmt.Sprintf("%v: %d bytes, beginning with %.100s", err, len(out), out)
	})
}

// firstPackets sends one packet to each address of the namespace's link, as soon as the host's kernel no longer
// answers, and so before the machine can. The channels have nil when a packet was answered. The clients know
// the hardware address, because the kernel gives up asking for it after three seconds.
func (n netns) firstPackets(t *testing.T, clients netns, link string, addresses ...string) (all []<-chan error) {
	t.Helper()
	out, err := n.command("", "ip -brief link show dev "+link).Output()
	words := strings.Fields(string(out))
	if err != nil || len(words) < 3 {
		t.Fatalf("the link %s: %q, %v", link, words, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, address := range addresses {
		clients.run(t, "ip neigh replace "+address+" lladdr "+words[2]+" dev "+link+" nud permanent")
		answered := make(chan error, 1)
		all = append(all, answered)
		go func() {
			for ctx.Err() == nil {
				if filter, err := n.command("", "tc filter show dev "+link+" ingress").Output(); err == nil && len(filter) > 0 {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			answered <- clients.command("", "busybox ping -c 1 -W 600 "+address).Run()
		}()
	}
	return all
}

const echo = "busybox nc -ll -p 80 -e /bin/cat"

func TestAMachineHasTheAddressesOfItsNetworkNamespace(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		pod, clients := newNetns(t), newNetns(t)
		pod.attach(t, clients, "eth0", "192.0.2.", "2001:db8::")
		pod.run(t, "ip route add default via 192.0.2.1")
		pod.run(t, "ip route add 203.0.113.0/24 via 192.0.2.1 metric 7")
		pod.run(t, "ip -6 route add 2001:db8:2::/64 via 2001:db8::1")
		pod.run(t, "ip neigh add 192.0.2.99 lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
		first := pod.firstPackets(t, clients, "eth0", "192.0.2.7", "2001:db8::7")
		id := c.start(t, []string{"--with-ns", "network:" + string(pod)}, strings.Fields(echo)...)
		clients.expectEcho(t, "192.0.2.7")
		clients.expectEcho(t, "2001:db8::7")
		for _, ping := range first {
			if err := wait.For(t, "the answer to a client's first packet", ping); err != nil {
				t.Errorf("a client's first packet: %v", err)
			}
		}
		clients.run(t, "busybox ping -c 1 -W 60 192.0.2.7")
		c.exec(t, nil, id, "ping", "-c", "1", "-W", "60", "192.0.2.1").must(t)
		shown := c.exec(t, nil, id, "sh", "-c", "ip addr show dev eth0; ip route; ip -6 route; ip neigh").must(t).stdout
		for _, want := range []string{
			"mtu 1400", "192.0.2.7/24", "2001:db8::7/64", "default via 192.0.2.1", "203.0.113.0/24 via 192.0.2.1", "metric 7",
			"2001:db8:2::/64 via 2001:db8::1", "192.0.2.99 dev eth0 lladdr 02:00:00:00:00:99 ", "PERMANENT",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("%q is not in %s", want, shown)
			}
		}

		server := clients.command("", echo)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Process.Kill(); _ = server.Wait() })
		wait.Observe(t, "an echo from the client's side", func() (bool, string) {
			r := c.exec(t, nil, id, "sh", "-c", "printf hello | nc -w 60 192.0.2.1 80")
			return r.stdout == "hello", r.stderr
		})

		// As `docker network connect` does.
		pod.attach(t, clients, "net1", "198.51.100.", "2001:db8:1::")
		clients.expectEcho(t, "198.51.100.7")
		clients.run(t, "ip link del net1")
		wait.Observe(t, "the link has gone", func() (bool, string) {
			r := c.exec(t, nil, id, "ip", "addr")
			return r.code == 0 && !strings.Contains(r.stdout, "net1"), r.stdout + r.stderr
		})
		clients.expectEcho(t, "192.0.2.7")
	})
}

// ctr --cni attaches the network when the container is made and not yet started.
func TestAMachineHasTheAddressesThatItsNamespaceGetsBeforeStart(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		clients := newNetns(t)
		task := c.task(t, strings.Fields(echo))
		bridge(t, clients, netns(fmt.Sprintf("/proc/%d/ns/net", task.Pid())))
		if err := task.Start(c.context(t)); err != nil {
			t.Fatal(err)
		}
		clients.expectEcho(t, "192.0.2.7")
		clients.expectEcho(t, "2001:db8::7")
		for name, n := range c.traffic(t, task) {
			if name != "eth0" || n[0] < 300_000 || n[1] < 300_000 {
				t.Errorf("the metrics of %s have %d bytes received and %d sent", name, n[0], n[1])
			}
		}
	})
}

// bridge attaches a namespace to a bridge in the namespace of its clients, by CNI's plugin.
func bridge(t *testing.T, clients, pod netns) {
	t.Helper()
	const plugins = "/usr/lib/cni"
	if _, err := os.Stat(plugins + "/bridge"); err != nil {
		t.Skipf("the network is made by Debian's containernetworking-plugins (make deps): %v", err)
	}
	cmd := clients.command(`{"cniVersion":"1.0.0","name":"n","type":"bridge","bridge":"cni0","isGateway":true,"ipam":{"type":"host-local","dataDir":"`+t.TempDir()+`",
		"ranges":[[{"subnet":"192.0.2.0/24","rangeStart":"192.0.2.7"}],[{"subnet":"2001:db8::/64","rangeStart":"2001:db8::7"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}`, plugins+"/bridge")
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=c", "CNI_NETNS="+string(pod), "CNI_IFNAME=eth0", "CNI_PATH="+plugins)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the plugin bridge: %v: %s", err, out)
	}
	// Until then a client may take the address of another link for its own.
	wait.Observe(t, "the bridge's addresses are valid", func() (bool, string) {
		out, err := clients.command("", "ip -6 -o addr show tentative").CombinedOutput()
		return err == nil && len(out) == 0, string(out)
	})
}

// traffic returns the bytes that the interfaces of a task have received and sent, by their names.
func (c *column) traffic(t *testing.T, task containerd.Task) map[string][2]uint64 {
	t.Helper()
	m, err := task.Metrics(c.context(t))
	if err != nil {
		t.Fatal(err)
	}
	data, err := typeurl.UnmarshalAny(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]uint64{}
	switch s := data.(type) {
	case *v1.Metrics:
		for _, n := range s.Network {
			all[n.Name] = [2]uint64{n.RxBytes, n.TxBytes}
		}
	case *v2.Metrics:
		for _, n := range s.Network {
			all[n.Name] = [2]uint64{n.RxBytes, n.TxBytes}
		}
	}
	if len(all) == 0 {
		t.Error("the metrics have no interfaces")
	}
	return all
}

// It is refused by run, and no machine boots.
func TestANetworkThatAMachineCannotHaveIsRefusedByName(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		pod := newNetns(t)
		pod.run(t, "ip tuntap add dev tun9 mode tun")
		pod.run(t, "ip link set tun9 up")
		r := c.run(t, []string{"--with-ns", "network:" + string(pod)}, c.id(), "true")
		if r.code == 0 || !strings.Contains(r.stderr, `the network namespace: the link "tun9" is not Ethernet`) {
			t.Errorf("exit code %d: %s", r.code, r.stderr)
		}
		r = c.run(t, []string{"--net-host"}, c.id(), "true")
		if r.code == 0 || !strings.Contains(r.stderr, `without "network"`) {
			t.Errorf("the host's network: exit code %d: %s", r.code, r.stderr)
		}
	})
}
