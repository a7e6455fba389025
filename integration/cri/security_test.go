package cri

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/inspection"
)

func security() section {
	return section{"Security", []feature{
		{"seccomp: RuntimeDefault", seccompDefault},
		{"seccomp: Localhost", seccompLocalhost},
		{"seccomp: Unconfined", seccompUnconfined},
		{"capabilities: the default ones", capabilitiesDefault},
		{"capabilities: added and dropped", capabilitiesChanged},
		{"allowPrivilegeEscalation: false", noNewPrivileges},
		{"readOnlyRootFilesystem", readOnlyRoot},
		{"procMount: Default", procMountDefault},
		{"procMount: Unmasked", procMountUnmasked},
		{"privileged", privileged},
		{"a privileged pod with a container that is not", privilegedPod},
		{"AppArmor", appArmor},
		{"SELinux", seLinux},
	}}
}

// inspect runs a container that reports its setup.
func (p *pod) inspect(edits ...func(*runtimeapi.ContainerConfig)) inspection.Report {
	p.t.Helper()
	p.serial++
	out := p.output("inspect-"+itoa(p.serial), []string{"/bin/testprog", "inspect"}, edits...)
	var r inspection.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		p.t.Fatalf("testprog inspect: %v: %s", err, out)
	}
	return r
}

func seccomp(profile *runtimeapi.SecurityProfile) func(*runtimeapi.ContainerConfig) {
	return secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.Seccomp = profile })
}

func seccompDefault(t *testing.T, c *column) {
	p := c.pod(t)
	if r := p.inspect(); r.Status["Seccomp"] != "2" {
		t.Errorf("Seccomp: %s", r.Status["Seccomp"])
	}
	if out := p.output("a", []string{"/bin/testprog", "keyring"}); out != "forbidden\n" {
		t.Errorf("the keyring is %s", out)
	}
}

func seccompLocalhost(t *testing.T, c *column) {
	file := filepath.Join(t.TempDir(), "profile.json")
	profile := `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}]}`
	if err := os.WriteFile(file, []byte(profile), 0o644); err != nil {
		t.Fatal(err)
	}
	p := c.pod(t)
	local := seccomp(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: file})
	one := p.run("a", sh("mkdir /tmp/x; echo $?; cat /dev/null && echo fine"), local)
	one.expectExit(0)
	if l := one.log(); !strings.Contains(l, "No space left") || !strings.Contains(l, "fine") {
		t.Errorf("it wrote:\n%s", l)
	}
	// An exec has the same restriction.
	two := p.run("b", forever(), local)
	if _, _, errout := two.execCode("mkdir", "/tmp/x"); !strings.Contains(errout, "No space left") {
		t.Errorf("exec mkdir: %q", errout)
	}
	p.expectRefused("no-such-profile", sh("true"), seccomp(&runtimeapi.SecurityProfile{
		ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/no-such-profile.json",
	}))
}

func seccompUnconfined(t *testing.T, c *column) {
	p := c.pod(t, linux(func(l *runtimeapi.LinuxPodSandboxConfig) {
		l.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}))
	if r := p.inspect(seccomp(&runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined})); r.Status["Seccomp"] != "0" {
		t.Errorf("Seccomp: %s", r.Status["Seccomp"])
	}
}

func capabilities(add, drop []string) func(*runtimeapi.ContainerConfig) {
	return secured(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.Capabilities = &runtimeapi.Capability{AddCapabilities: add, DropCapabilities: drop}
	})
}

// Root has these capabilities in a container by default: containerd's list.
const defaultCapabilities = "00000000a80425fb"

func capabilitiesDefault(t *testing.T, c *column) {
	r := c.pod(t).inspect()
	for _, set := range []string{"CapPrm", "CapEff", "CapBnd"} {
		if r.Status[set] != defaultCapabilities {
			t.Errorf("%s: %s, want %s", set, r.Status[set], defaultCapabilities)
		}
	}
	for _, set := range []string{"CapInh", "CapAmb"} {
		if r.Status[set] != "0000000000000000" {
			t.Errorf("%s: %s", set, r.Status[set])
		}
	}
}

func capabilitiesChanged(t *testing.T, c *column) {
	p := c.pod(t)
	if r := p.inspect(capabilities([]string{"NET_ADMIN"}, []string{"CHOWN"})); r.Status["CapEff"] != "00000000a80435fa" {
		t.Errorf("with NET_ADMIN and without CHOWN: %s", r.Status["CapEff"])
	}
	if r := p.inspect(capabilities([]string{"NET_BIND_SERVICE"}, []string{"ALL"})); r.Status["CapEff"] != "0000000000000400" {
		t.Errorf("with NET_BIND_SERVICE only: %s", r.Status["CapEff"])
	}
	if r := p.inspect(capabilities(nil, []string{"ALL"})); r.Status["CapBnd"] != "0000000000000000" {
		t.Errorf("without any: %s", r.Status["CapBnd"])
	}
	p.output("link", sh("ip link add name dummy-br type bridge && ip link del dummy-br"), capabilities([]string{"NET_ADMIN"}, nil))
	one := p.run("chown", sh("chown 1000 /tmp"), capabilities(nil, []string{"CHOWN"}))
	one.expectExit(1)
	// An exec has the container's settings.
	two := p.run("two", forever(), capabilities(nil, []string{"ALL"}))
	if out := two.exec("grep", "CapEff", "/proc/self/status"); !strings.Contains(out, "0000000000000000") {
		t.Errorf("an exec has %s", out)
	}
}

func noNewPrivileges(t *testing.T, c *column) {
	p := c.pod(t)
	for _, forbidden := range []bool{true, false} {
		r := p.inspect(secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.NoNewPrivs = forbidden }))
		if want := map[bool]string{true: "1", false: "0"}[forbidden]; r.Status["NoNewPrivs"] != want {
			t.Errorf("NoNewPrivs: %s, want %s", r.Status["NoNewPrivs"], want)
		}
	}
}

func readOnlyRoot(t *testing.T, c *column) {
	p := c.pod(t)
	v := volume(t, p)
	out := p.output("a", sh("touch /x 2>&1; touch /tmp/x 2>&1; touch /volume/x /dev/shm/x && echo written"),
		secured(func(s *runtimeapi.LinuxContainerSecurityContext) { s.ReadonlyRootfs = true }), mounted(v))
	if strings.Count(out, "Read-only file system") != 2 || !strings.Contains(out, "written") {
		t.Errorf("it wrote:\n%s", out)
	}
}

const procScript = `
for f in /proc/kcore /proc/timer_list /proc/keys; do [ -e $f ] && echo "$f $(head -c1 $f | wc -c)"; done
ls /sys/firmware | wc -l
for d in /proc/sys /proc/irq /proc/bus /proc/fs; do grep " $d " /proc/mounts | cut -d' ' -f2,4 | cut -d, -f1; done`

func procMountDefault(t *testing.T, c *column) {
	out := c.pod(t).output("a", sh(procScript))
	for _, l := range lines(out) {
		if strings.HasPrefix(l, "/proc/k") && !strings.HasSuffix(l, " 0") || strings.HasSuffix(l, " rw") {
			t.Errorf("not masked or not read-only: %s", l)
		}
	}
	for _, l := range []string{"/proc/sys ro", "/proc/irq ro", "/proc/bus ro", "/proc/fs ro"} {
		if !strings.Contains(out, l) {
			t.Errorf("no %q in\n%s", l, out)
		}
	}
}

func procMountUnmasked(t *testing.T, c *column) {
	out := c.pod(t).output("a", sh(procScript), secured(func(s *runtimeapi.LinuxContainerSecurityContext) {
		s.MaskedPaths, s.ReadonlyPaths = []string{}, []string{}
	}))
	if strings.Contains(out, "/proc/sys ro") || !strings.Contains(out, "/proc/kcore 1") && !strings.Contains(out, "/proc/timer_list 1") {
		t.Errorf("it found:\n%s", out)
	}
}

func privilegedConfig(config *runtimeapi.ContainerConfig) {
	config.Linux.SecurityContext.Privileged = true
	config.Linux.SecurityContext.Seccomp = nil
}

func privilegedPodConfig(config *runtimeapi.PodSandboxConfig) {
	config.Linux.SecurityContext.Privileged = true
	config.Linux.SecurityContext.Seccomp = nil
}

func privileged(t *testing.T, c *column) {
	p := c.pod(t, privilegedPodConfig)
	r := p.inspect(privilegedConfig)
	mine, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mine), "CapBnd:\t"+r.Status["CapEff"]) {
		t.Errorf("CapEff: %s, the node's:\n%s", r.Status["CapEff"], mine)
	}
	if r.Status["Seccomp"] != "0" {
		t.Errorf("Seccomp: %s", r.Status["Seccomp"])
	}
	p.output("mount", sh("mount -t tmpfs x /tmp && umount /tmp && mount -t sysfs x /tmp && [ -e /dev/loop0 -o -e /dev/vda -o -e /dev/kmsg ]"), privilegedConfig)
	p.output("device", sh("mknod /tmp/kmsg c 1 11 && : </tmp/kmsg"), privilegedConfig)
	out := p.output("writable", sh("touch /sys/x 2>&1; echo 1 >/proc/sys/net/ipv4/ip_forward && cat /proc/sys/net/ipv4/ip_forward"), privilegedConfig)
	if strings.Contains(out, "Read-only") || !strings.HasSuffix(out, "1\n") {
		t.Errorf("it wrote %s", out)
	}
}

func privilegedPod(t *testing.T, c *column) {
	p := c.pod(t, privilegedPodConfig)
	if r := p.inspect(); r.Status["CapEff"] != defaultCapabilities {
		t.Errorf("CapEff: %s", r.Status["CapEff"])
	}
	// CRI itself refuses the reverse.
	p = c.pod(t)
	if _, err := p.tryRun("a", sh("true"), privilegedConfig); err == nil || !strings.Contains(err.Error(), "privileged") {
		t.Errorf("a privileged container in another pod: %v", err)
	}
}

func appArmor(t *testing.T, c *column) {
	if _, err := os.Stat("/sys/kernel/security/apparmor"); err != nil {
		p := c.pod(t)
		p.expectRefused("apparmor", sh("true"), secured(func(s *runtimeapi.LinuxContainerSecurityContext) {
			s.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "some-profile"}
		}))
		c.skip(t, "this machine has no AppArmor; a profile is refused by name")
	}
	r := c.pod(t).inspect()
	b, err := os.ReadFile("/sys/kernel/security/apparmor/profiles")
	if err != nil || !strings.Contains(string(b), "cri-containerd.apparmor.d") {
		t.Errorf("the default profile is not loaded (%v) for %v", err, r.Args)
	}
}

func seLinux(t *testing.T, c *column) {
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		c.skip(t, "this machine has no SELinux")
	}
	p := c.pod(t)
	out := p.output("a", sh("cat /proc/self/attr/current"))
	if !strings.Contains(out, ":container_t:") {
		t.Errorf("its label is %s", out)
	}
}
