package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// rktsHost is a column whose pods use rkt's own stage1 image `host`, which isolates them with
// systemd-nspawn: with or without a pause container.
func rktsHost(t *testing.T, number int, sandboxer string) *column {
	t.Helper()
	if why := missing(); why != "" {
		t.Skip(why)
	}
	image := filepath.Join(rktsDir, "host")
	if _, err := os.Stat(image); errors.Is(err, fs.ErrNotExist) {
		t.Skip("rkt's own images cannot be built here")
	}
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		t.Skipf("the flavor host runs systemd-nspawn and systemd of the machine, of Debian's systemd-container: %v", err)
	}
	config := filepath.Join(t.TempDir(), "config.toml")
	text := fmt.Sprintf("default = \"rkts\"\n[stage1.rkts]\npath = %q\naccept = [\"appc\", \"/process/capabilities\", \"/linux/seccomp\", \"/process/noNewPrivileges\"]\n", image)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return &column{
		name: "rkts-" + sandboxer, number: number, env: []string{"RKT_CONFIG=" + config},
		handler: node.Handler{Name: "rkts", Runtime: nativeRuntime, Sandboxer: sandboxer},
	}
}

// Numbers of columns outside the suite.
const (
	rktsShim = 20 + iota
	rktsPodsandbox
)

// Without a pause container the pod consists of what `run` has made. It has CRI's network, and
// containers are added to it and removed.
func TestAPodOfRktsHostIsASandboxForItsContainers(t *testing.T) {
	t.Parallel()
	c := rktsHost(t, rktsShim, "shim")
	c.open(t)
	t.Cleanup(func() { c.cleanUp(t) })
	const sysctl = "net.ipv4.ip_unprivileged_port_start"
	p := c.pod(t, linux(func(l *runtimeapi.LinuxPodSandboxConfig) { l.Sysctls = map[string]string{sysctl: "79"} }))
	ip := p.status().GetNetwork().GetIp()
	first := p.run("first", sh("echo mine >/dev/shm/x; echo started; while :; do nc -l -p 80 -e echo hello; done"))
	first.awaitLog("started\n")
	// rkt's app/start returns before the program has done anything, so the test waits until it
	// would notice the signal that ends it.
	second := p.run("second", sh("trap 'exit 0' TERM; echo ready; while :; do sleep 1000 & wait $!; done"))
	second.awaitLog("ready\n")
	for _, one := range []*container{first, second} {
		name := one.config.GetMetadata().GetName()
		if got := strings.TrimSpace(one.exec("hostname")); got != p.config.GetHostname() {
			t.Errorf("%s: hostname %q, want %q", name, got, p.config.GetHostname())
		}
		if got := one.exec("ip", "-4", "-o", "addr", "show", "eth0"); !strings.Contains(got, " "+ip+"/") {
			t.Errorf("%s: the pod's address is %s, and it has %s", name, ip, got)
		}
		if got := one.exec("cat", "/proc/sys/"+strings.ReplaceAll(sysctl, ".", "/"), "/dev/shm/x", "/etc/resolv.conf"); !strings.HasPrefix(got, "79\nmine\n") || !strings.Contains(got, "nameserver 10.96.0.10") {
			t.Errorf("%s: its kernel parameter, /dev/shm and resolv.conf: %q", name, got)
		}
	}
	wait.Observe(t, "the second container reaches the first one", func() (bool, string) {
		got := second.exec("sh", "-c", "nc 127.0.0.1 80 || :")
		return got == "hello\n", got
	})
	second.stop(10)
	second.expectExit(0)
	second.remove()
	third := p.run("third", sh("echo third; exit 3"))
	third.expectExit(3)
	if got := third.log(); got != "third\n" {
		t.Errorf("the third container wrote %q", got)
	}
	first.expectRunning()
	if s, err := c.runtime.PodSandboxStats(testContext(t), p.id); err != nil || s.GetLinux().GetProcess().GetProcessCount().GetValue() == 0 {
		t.Errorf("statistics of the pod: %v, %v", s, err)
	}
	p.stop()
	first.expectExit(137)
	p.expectState(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
	p.remove()
}

// Kubernetes' pause container runs as a user for whom systemd runs no unit.
func TestAPauseContainerOfRktsHostIsRefusedByItsUser(t *testing.T) {
	t.Parallel()
	c := rktsHost(t, rktsPodsandbox, "podsandbox")
	c.open(t)
	t.Cleanup(func() { c.cleanUp(t) })
	_, err := c.tryPod(t)
	if err == nil || !strings.Contains(err.Error(), "/process/user/uid: systemd runs nothing as 65535") {
		t.Errorf("run a pod whose pause container is of user 65535: %v", err)
	}
}
