package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

func namespaces() section {
	return section{"Namespaces, names and network", []feature{
		{"network, IPC and UTS shared by the containers", sharedNamespaces},
		{"PID namespace per container", pidPerContainer},
		{"PID namespace per pod (shareProcessNamespace)", pidPerPod},
		{"PID namespace of the node (hostPID)", pidOfNode},
		{"network of the node (hostNetwork)", hostNetwork},
		{"IPC of the node (hostIPC)", hostIPC},
		{"hostname", hostname},
		{"resolv.conf from the pod's DNS", resolvConf},
		{"hosts from the kubelet", hostsFile},
		{"shared memory (/dev/shm) of the containers", sharedMemory},
		{"sysctls", sysctls},
		{"a sysctl of the node is refused", nodeSysctl},
		{"ports below 1024 and ping without capabilities", unprivilegedPorts},
		{"an address, and pods that reach each other", podNetwork},
		{"host ports", hostPort},
	}}
}

// namespaceOf returns the identity of a namespace of a container's first process.
func (c *container) namespaceOf(kind string) string {
	c.t.Helper()
	return strings.TrimSpace(c.exec("readlink", "/proc/self/ns/"+kind))
}

// nodeNamespace returns the identity of a namespace of the node.
func nodeNamespace(t *testing.T, kind string) string {
	t.Helper()
	s, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sharedNamespaces(t *testing.T, c *column) {
	p := c.pod(t)
	a, b := p.run("a", forever()), p.run("b", forever())
	for _, kind := range []string{"net", "ipc", "uts"} {
		if a.namespaceOf(kind) != b.namespaceOf(kind) || a.namespaceOf(kind) == nodeNamespace(t, kind) {
			t.Errorf("%s: %s and %s, the node's is %s", kind, a.namespaceOf(kind), b.namespaceOf(kind), nodeNamespace(t, kind))
		}
	}
	if a.namespaceOf("mnt") == b.namespaceOf("mnt") {
		t.Error("the containers share their mounts")
	}
}

func pidPerContainer(t *testing.T, c *column) {
	p := c.pod(t)
	a, b := p.run("a", sh("exec sleep 4141")), p.run("b", sh("exec sleep 4242"))
	if out := a.exec("cat", "/proc/1/cmdline"); !strings.Contains(out, "4141") {
		t.Errorf("process 1 is %q", out)
	}
	if a.namespaceOf("pid") == b.namespaceOf("pid") {
		t.Error("the containers share a PID namespace")
	}
}

func pidPerPod(t *testing.T, c *column) {
	shared := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}
	p := c.pod(t, withNamespaces(shared))
	a, b := p.run("a", sh("exec sleep 4141")), p.run("b", forever())
	if a.namespaceOf("pid") != b.namespaceOf("pid") {
		t.Error("the containers have PID namespaces of their own")
	}
	all := b.exec("ps", "-o", "pid,args")
	if !strings.Contains(all, "sleep 4141") {
		t.Errorf("one does not see the other's process:\n%s", all)
	}
	// The namespace's first process reaps processes that a container leaves behind.
	b.exec("sh", "-c", "(sleep 0.1 & exit 0)")
	wait.Observe(t, "nobody stays a zombie", func() (bool, string) {
		out := b.exec("ps", "-o", "stat,args")
		return !slices.ContainsFunc(lines(out), func(l string) bool { return strings.HasPrefix(l, "Z") }), out
	})
	b.exec("sh", "-c", "kill -9 $(ps -o pid,args | awk '/[s]leep 4141/ {print $1}')")
	a.expectExit(137)
	b.expectRunning()
	// Another container may come, and the processes of a stopped container end with it.
	d := p.run("d", sh("sleep 4343 & sleep 4343"))
	d.stop(0)
	d.expectExit(137)
	wait.Observe(t, "the processes of a stopped container are gone", func() (bool, string) {
		out := b.exec("ps", "-o", "args")
		return !strings.Contains(out, "4343"), out
	})
}

func pidOfNode(t *testing.T, c *column) {
	p := c.pod(t, withNamespaces(&runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_NODE}))
	a := p.run("a", forever())
	if a.namespaceOf("pid") != nodeNamespace(t, "pid") {
		t.Error("it is not in the node's PID namespace")
	}
	mine := fmt.Sprint("sleep 414", c.number) // other columns run in parallel
	b := p.run("b", sh(mine+" & "+mine))
	b.stop(0)
	b.expectExit(137)
	wait.Observe(t, "the processes of a stopped container are gone", func() (bool, string) {
		out := a.exec("ps", "-o", "args")
		return !strings.Contains(out, mine), out
	})
	a.expectRunning()
}

func hostNetwork(t *testing.T, c *column) {
	p := c.pod(t, withNamespaces(&runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER,
	}), func(config *runtimeapi.PodSandboxConfig) {
		config.Hostname = ""
	})
	a := p.run("a", forever())
	if a.namespaceOf("net") != nodeNamespace(t, "net") {
		t.Error("it is not in the node's network namespace")
	}
	if a.namespaceOf("ipc") == nodeNamespace(t, "ipc") {
		t.Error("it is in the node's IPC namespace")
	}
	name, err := os.Hostname()
	if got := strings.TrimSpace(a.exec("hostname")); err != nil || got != name {
		t.Errorf("hostname %q, the node's is %q (%v)", got, name, err)
	}
	if ip := p.status().GetNetwork().GetIp(); ip != "" {
		t.Errorf("the pod has the address %s of its own", ip)
	}
}

func hostIPC(t *testing.T, c *column) {
	p := c.pod(t, withNamespaces(&runtimeapi.NamespaceOption{
		Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER,
	}))
	a := p.run("a", forever())
	if a.namespaceOf("ipc") != nodeNamespace(t, "ipc") {
		t.Error("it is not in the node's IPC namespace")
	}
	name := "rkt-cri-" + p.id[:12]
	file := filepath.Join("/dev/shm", name)
	if err := os.WriteFile(file, []byte("of the node"), 0o644); err != nil {
		t.Skipf("the node has no /dev/shm: %v", err)
	}
	defer os.Remove(file)
	if out := a.exec("cat", file); out != "of the node" {
		t.Errorf("it reads %q in the node's /dev/shm", out)
	}
}

func hostname(t *testing.T, c *column) {
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) { config.Hostname = "some-host" })
	out := p.output("a", sh("hostname; cat /etc/hostname; echo $HOSTNAME"))
	if out != "some-host\nsome-host\nsome-host\n" {
		t.Errorf("hostname, /etc/hostname, $HOSTNAME:\n%s", out)
	}
}

func resolvConf(t *testing.T, c *column) {
	p := c.pod(t)
	out := p.output("a", sh("cat /etc/resolv.conf"))
	if out != "search default.svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n" {
		t.Errorf("it is:\n%s", out)
	}
	// If the pod does not set it, the node's value counts.
	p = c.pod(t, func(config *runtimeapi.PodSandboxConfig) { config.DnsConfig = nil })
	node, err := os.ReadFile("/etc/resolv.conf")
	if out := p.output("a", sh("cat /etc/resolv.conf")); err != nil || strings.TrimSpace(out) != strings.TrimSpace(string(node)) {
		t.Errorf("it is %q, the node's is %q (%v)", out, node, err)
	}
}

func hostsFile(t *testing.T, c *column) {
	p := c.pod(t)
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("127.0.0.1 localhost of-the-kubelet\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := p.output("a", sh("cat /etc/hosts; nslookup of-the-kubelet >/dev/null 2>&1; echo found"),
		mounted(&runtimeapi.Mount{HostPath: file, ContainerPath: "/etc/hosts"}))
	if !strings.Contains(out, "of-the-kubelet") || !strings.Contains(out, "found") {
		t.Errorf("it is:\n%s", out)
	}
	if out := p.output("b", sh("cat /etc/hosts")); !strings.Contains(out, "localhost") {
		t.Errorf("without the kubelet's it is:\n%s", out)
	}
}

func sharedMemory(t *testing.T, c *column) {
	p := c.pod(t)
	a := p.run("a", sh("echo hello >/dev/shm/greeting; exec sleep 1000"))
	b := p.run("b", forever())
	wait.Observe(t, "one sees the other's file", func() (bool, string) {
		_, out, errout := b.execCode("cat", "/dev/shm/greeting")
		return out == "hello\n", out + errout
	})
	out := a.exec("sh", "-c", "grep ' /dev/shm ' /proc/mounts; stat -fc '%S %b' /dev/shm")
	if !strings.Contains(out, "tmpfs") || !strings.Contains(out, "4096 16384") {
		t.Errorf("/dev/shm is to be a tmpfs of 64 MiB:\n%s", out)
	}
}

func sysctls(t *testing.T, c *column) {
	p := c.pod(t, linux(func(l *runtimeapi.LinuxPodSandboxConfig) {
		l.Sysctls = map[string]string{
			"net.ipv4.ip_local_port_range": "1024 65000",
			"net/core/somaxconn":           "77",
			"kernel.shm_rmid_forced":       "1",
			"kernel.msgmax":                "4096",
		}
	}))
	out := p.output("a", sh("cd /proc/sys; cat net/ipv4/ip_local_port_range net/core/somaxconn kernel/shm_rmid_forced kernel/msgmax"))
	if got := strings.Join(strings.Fields(out), " "); got != "1024 65000 77 1 4096" {
		t.Errorf("they are %q", got)
	}
}

func nodeSysctl(t *testing.T, c *column) {
	_, err := c.tryPod(t, linux(func(l *runtimeapi.LinuxPodSandboxConfig) {
		l.Sysctls = map[string]string{"vm.swappiness": "7"}
	}))
	if err == nil || !strings.Contains(err.Error(), "vm.swappiness") {
		t.Errorf("run a pod with vm.swappiness: %v", err)
	}
}

func unprivilegedPorts(t *testing.T, c *column) {
	p := c.pod(t)
	drop := secured(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.Capabilities = &runtimeapi.Capability{DropCapabilities: []string{"ALL"}}
		s.RunAsUser = &runtimeapi.Int64Value{Value: 1000}
	})
	web := p.run("web", sh("cd /tmp && echo hello >index.html && exec httpd -f -p 80 -h /tmp"), drop)
	wait.Observe(t, "it serves port 80", func() (bool, string) {
		_, out, errout := web.execCode("wget", "-qO-", "http://127.0.0.1/")
		return out == "hello\n", out + errout
	})
	if out := p.output("ping", []string{"/bin/testprog", "echo-socket"}, drop); out != "opened\n" {
		t.Errorf("the socket of pings: %s", out)
	}
}

func podNetwork(t *testing.T, c *column) {
	p := c.pod(t)
	ip := p.status().GetNetwork().GetIp()
	if ip == "" {
		t.Fatal("the pod has no address")
	}
	p.run("web", serve(8080))
	other := c.pod(t)
	client := other.run("client", forever())
	wait.Observe(t, "another pod reaches it", func() (bool, string) {
		_, out, errout := client.execCode("wget", "-qO-", "http://"+ip+":8080/")
		return out == "hello\n", out + errout
	})
	if out := client.exec("ip", "-o", "addr"); !strings.Contains(out, other.status().GetNetwork().GetIp()+"/") || !strings.Contains(out, "127.0.0.1") {
		t.Errorf("its interfaces:\n%s", out)
	}
}

func hostPort(t *testing.T, c *column) {
	p := c.pod(t, func(config *runtimeapi.PodSandboxConfig) {
		config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 8080, HostPort: int32(c.port(80))}}
	})
	p.run("web", serve(8080))
	// From the node itself a connection to localhost needs route_localnet; one to an address of
	// the bridge does not.
	client := c.pod(t).run("client", forever())
	gateway := strings.TrimSpace(client.exec("sh", "-c", "ip route | awk '/default/ {print $3}'"))
	wait.Observe(t, "another pod reaches the port of the node", func() (bool, string) {
		_, out, errout := client.execCode("wget", "-qO-", fmt.Sprintf("http://%s:%d/", gateway, c.port(80)))
		return out == "hello\n", out + errout
	})
}
