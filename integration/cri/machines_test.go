package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// TestPodsOfMachines boots one machine for each handler, and looks at it as the kubelet would.
func TestPodsOfMachines(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	if !machines.Only() {
		t.Skip("boots machines: make test-kvm")
	}
	for _, c := range suiteColumns {
		t.Run(c.name, func(t *testing.T) {
			c.open(t)
			t.Run("refused", func(t *testing.T) {
				t.Cleanup(func() { c.cleanUp(t) })
				refusedMachines(t, c)
			})
			for _, kind := range []string{"q35", "microvm"} {
				t.Run("a pod of the type "+kind, func(t *testing.T) {
					t.Cleanup(func() { c.cleanUp(t) })
					podOfMachine(t, c, kind)
				})
			}
			for name, try := range map[string]func(*testing.T, *column){
				"user namespace": userNamespace, "volumes": userNamespaceVolumes, "execs": userNamespaceExec, "power": userNamespacePower,
			} {
				t.Run("user namespace, "+name, func(t *testing.T) {
					t.Cleanup(func() { c.cleanUp(t) })
					try(t, c)
				})
			}
		})
	}
}

// refusedMachines asks for pods that a machine cannot be. None boots.
func refusedMachines(t *testing.T, c *column) {
	pod, node := runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE
	for kind, o := range map[string]*runtimeapi.NamespaceOption{
		"network": {Network: node, Pid: runtimeapi.NamespaceMode_CONTAINER},
		"pid":     {Pid: node},
		"ipc":     {Ipc: node, Pid: pod},
	} {
		_, err := c.tryPod(t, withNamespaces(o), func(config *runtimeapi.PodSandboxConfig) { config.Hostname = "" })
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("without %q", kind)) {
			t.Errorf("the node's %s: %v", kind, err)
		}
	}
}

// podOfMachine looks at the pod of a machine of a type of QEMU's.
func podOfMachine(t *testing.T, c *column, kind string) {
	volume := t.TempDir()
	// publish updates a volume as the kubelet updates a ConfigMap: by replacing a link.
	publish := func(text string) {
		t.Helper()
		dir, link := filepath.Join(volume, text), filepath.Join(volume, "..new")
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "key"), []byte(text), 0o644),
			os.Symlink(text, link), os.Rename(link, filepath.Join(volume, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	publish("one")
	p := c.pod(t, linux(func(l *runtimeapi.LinuxPodSandboxConfig) {
		l.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
		l.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "40000 40100", "kernel.shm_rmid_forced": "1"}
	}), func(config *runtimeapi.PodSandboxConfig) {
		config.Annotations = map[string]string{"io.containerd.rkt.v1/kvm.type": kind}
	})
	a := p.run("a", sh("echo out; echo err >&2; exec sleep 4141"), mounted(&runtimeapi.Mount{ContainerPath: "/config", HostPath: volume, Readonly: true}))
	b := p.run("b", forever(), limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 64 << 20 }))

	host, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	if kernel := a.exec("uname", "-r"); kernel == string(host) {
		t.Errorf("the kernel is the node's, %s", kernel)
	}
	if devices := a.exec("ls", "/sys/bus/pci/devices"); (devices == "") != (kind == "microvm") {
		t.Errorf("the machine has the devices of PCI %q", devices)
	}
	for _, kind := range []string{"net", "ipc", "uts", "pid"} {
		if one, other := a.namespaceOf(kind), b.namespaceOf(kind); one != other {
			t.Errorf("%s: %s and %s", kind, one, other)
		}
	}
	for file, want := range map[string]string{
		"/proc/sys/net/ipv4/ip_local_port_range": "40000\t40100\n", "/proc/sys/net/ipv4/ip_unprivileged_port_start": "0\n",
		"/proc/sys/kernel/shm_rmid_forced": "1\n", "/proc/sys/kernel/hostname": p.config.GetHostname() + "\n", "/etc/hostname": p.config.GetHostname() + "\n",
		"/etc/resolv.conf": "search default.svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n",
	} {
		if got := b.exec("cat", file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	if ps := b.exec("ps", "-o", "args"); !strings.Contains(ps, "sleep 4141") {
		t.Errorf("one does not see the other's process:\n%s", ps)
	}

	// The machine has their /dev/shm, with the size that CRI gives it.
	a.exec("sh", "-c", "echo hello >/dev/shm/greeting")
	if got := b.exec("sh", "-c", "cat /dev/shm/greeting; grep -c ' /dev/shm tmpfs ' /proc/mounts; stat -fc '%S %b' /dev/shm"); got != "hello\n1\n4096 16384\n" {
		t.Errorf("the shared memory of the pod is %q", got)
	}
	if text := a.exec("cat", "/config/..data/key"); text != "one" {
		t.Errorf("the volume has %q", text)
	}
	publish("two")
	wait.Until(t, "the machine sees the update of its volume", func() bool { return a.exec("cat", "/config/..data/key") == "two" })

	if code, _, _ := b.execCode("sh", "-c", "exit 3"); code != 3 {
		t.Errorf("a probe that fails has exit code %d", code)
	}
	a.awaitLog("out")
	if out, errout := a.stream("stdout"), a.stream("stderr"); out != "out\n" || errout != "err\n" {
		t.Errorf("the log has %q and %q", out, errout)
	}
	ip := p.status().GetNetwork().GetIp()
	if addresses := b.exec("ip", "-4", "-o", "addr"); ip == "" || !strings.Contains(addresses, ip+"/") {
		t.Errorf("the pod has the address %q, and the machine\n%s", ip, addresses)
	}

	forward(t, p, 8080)

	greedy := p.run("greedy", []string{"/bin/testprog", "allocate", "100"}, limited(func(r *runtimeapi.LinuxContainerResources) { r.MemoryLimitInBytes = 32 << 20 }))
	if s := greedy.expectExit(137); s.GetReason() != "OOMKilled" {
		t.Errorf("reason %q", s.GetReason())
	}
	wait.Observe(t, "the statistics are there", func() (bool, string) {
		s, err := c.runtime.ContainerStats(testContext(t), b.id)
		if err != nil {
			return false, err.Error()
		}
		used := s.GetMemory().GetUsageBytes().GetValue()
		return s.GetCpu().GetUsageCoreNanoSeconds().GetValue() > 0 && used > 0 && used <= 64<<20, s.String()
	})
	a.stop(0)
	a.expectExit(137)
	b.expectRunning()
	p.stop()
	p.expectState(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
}
