package main

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// startAlone starts a pod whose supervisor is in a network namespace of its own, which stands
// for the host's. It has the device data0, with an address.
func startAlone(t *testing.T) *pod {
	t.Helper()
	p := newPod(t)
	p.attr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if a := p.start(abi.Request{}); a.code != 0 {
		t.Fatalf("run: exit code %d: %s", a.code, a.text)
	}
	p.ip(p.ready.PID, "link", "add", "data0", "mtu", "1400", "type", "veth", "peer", "name", "peer0")
	p.ip(p.ready.PID, "addr", "add", "192.0.2.7/24", "dev", "data0")
	return p
}

// ip executes ip in the network namespace of a process.
func (p *pod) ip(pid int, args ...string) string {
	p.t.Helper()
	out, err := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "-n", "ip"}, args...)...).CombinedOutput()
	if err != nil {
		p.t.Fatalf("ip %v: %v: %s", args, err, out)
	}
	return string(out)
}

// devices makes a spec ask for the device data0, under the name net1.
func devices(s *specs.Spec) {
	s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"data0": {Name: "net1"}}
}

func newNetwork(s *specs.Spec) {
	s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace})
}

func mustSay(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

func TestANetworkDeviceOfTheHostIsTheAppsBeforeItsSysctlsAreSet(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		t.Run("user namespace "+strconv.FormatBool(mapped), func(t *testing.T) {
			p := startAlone(t)
			r := p.request("web", "sleep", "1000")
			respec(t, &r, newNetwork)
			respec(t, &r, devices)
			respec(t, &r, func(s *specs.Spec) {
				s.Linux.Sysctl = map[string]string{"net.ipv4.conf.net1.forwarding": "1"}
				if mapped {
					maps := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
					s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
					s.Linux.UIDMappings, s.Linux.GIDMappings = maps, maps
				}
			})
			pid := p.add(r)
			mustSay(t, p.ip(pid, "addr", "show", "net1"), "192.0.2.7/24", "mtu 1400", ",UP")
			if out := p.ip(p.ready.PID, "link"); strings.Contains(out, "data0@") {
				t.Errorf("the host has the device still:\n%s", out)
			}
			p.expect(0, abi.AppStart, "web")
			p.expect(0, abi.AppStop, "web")
			p.exited("web", "", 137, 9)
		})
	}
}

// A driver of dynamic resource allocation prepares a device before the pod's sandbox exists, and
// asks for it in the spec of a container, which joins the sandbox's network namespace.
func TestANetworkDeviceStaysInThePodsNetworkWhenTheAppHasEnded(t *testing.T) {
	p := startAlone(t)
	pause := p.request("pause", "sleep", "1000")
	respec(t, &pause, newNetwork)
	sandbox := p.add(pause)
	p.expect(0, abi.AppStart, "pause")
	r := p.request("web", "sleep", "1000")
	respec(t, &r, func(s *specs.Spec) { s.Linux.Namespaces = joined(sandbox, "network", "ipc", "uts") })
	respec(t, &r, devices)
	p.add(r)
	p.expect(0, abi.AppStart, "web")
	p.expect(0, abi.AppStop, "web")
	p.exited("web", "", 137, 9)
	p.expect(0, abi.AppRm, "web")
	mustSay(t, p.ip(sandbox, "addr", "show", "net1"), "192.0.2.7/24")

	// The same container once more: the device is there no longer, and the error says so.
	again := p.request("again", "sleep", "1000")
	respec(t, &again, func(s *specs.Spec) { s.Linux.Namespaces = joined(sandbox, "network") })
	respec(t, &again, devices)
	a := p.call(abi.AppAdd, entrypoint{request: again})
	mustSay(t, a.text, "linux.netDevices: there is no network device data0 on the host")
}

func TestAnAppThatFailsGivesItsNetworkDevicesBack(t *testing.T) {
	for name, change := range map[string]func(*specs.Spec){
		"a hook fails":         func(s *specs.Spec) { s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: "/bin/false"}}} },
		"no program":           func(s *specs.Spec) { s.Process.Args = []string{"/absent"} },
		"a sysctl is unknown":  func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"net.ipv4.absent": "1"} },
		"a device is missing":  func(s *specs.Spec) { s.Linux.NetDevices["data9"] = specs.LinuxNetDevice{} },
		"the name is not free": func(s *specs.Spec) { s.Linux.NetDevices["peer0"] = specs.LinuxNetDevice{Name: "lo"} },
		"the host's network": func(s *specs.Spec) {
			s.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := startAlone(t)
			r := p.request("web", "sleep", "1000")
			respec(t, &r, newNetwork)
			respec(t, &r, func(s *specs.Spec) { s.Linux.Namespaces = append(s.Linux.Namespaces[:3:3], s.Linux.Namespaces[4]) })
			respec(t, &r, devices)
			respec(t, &r, change)
			if a := p.call(abi.AppAdd, entrypoint{request: r}); a.code == 0 {
				t.Fatal("app/add was successful")
			} else {
				t.Log(a.text)
			}
			mustSay(t, p.ip(p.ready.PID, "addr", "show", "data0"), "192.0.2.7/24", "mtu 1400")
			if out := p.ip(p.ready.PID, "link"); !strings.Contains(out, "peer0") {
				t.Errorf("the other device is lost:\n%s", out)
			}
		})
	}
}
