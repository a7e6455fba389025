package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func handling() section {
	return section{"Handlers", []feature{
		{"runtime and network are ready", ready},
		{"recursive read-only mounts declared", declaresRecursiveReadOnly},
		{"user namespaces declared", declaresUserNamespaces},
		{"a handler with runc's table of options", optionsTable},
		{"an unknown handler", unknownHandler},
	}}
}

// isReady reports whether the kubelet would run pods, and the reason if not.
func isReady(s *runtimeapi.StatusResponse) (ok bool, why string) {
	for _, condition := range s.GetStatus().GetConditions() {
		needed := condition.GetType() == runtimeapi.RuntimeReady || condition.GetType() == runtimeapi.NetworkReady
		if needed && !condition.GetStatus() {
			return false, condition.String()
		}
	}
	return true, ""
}

func ready(t *testing.T, c *column) {
	s, err := c.runtime.Status(testContext(t), true)
	if err != nil {
		t.Fatal(err)
	}
	if ok, why := isReady(s); !ok {
		t.Error(why)
	}
	// containerd cannot read this setting from the options of runtimes other than runc. It then
	// uses the setting of its default handler for runc.
	driver := runtimeapi.CgroupDriver_CGROUPFS
	if c.systemd && c.isRunc() {
		driver = runtimeapi.CgroupDriver_SYSTEMD
	}
	r, err := c.runtime.RuntimeConfig(testContext(t))
	if err != nil || r.GetLinux().GetCgroupDriver() != driver {
		t.Errorf("the cgroup driver is %v (%v), want %v", r.GetLinux(), err, driver)
	}
}

func declaresRecursiveReadOnly(t *testing.T, c *column) {
	if !c.features(t).GetRecursiveReadOnlyMounts() {
		if !c.isRunc() {
			t.Error("it does not")
		}
		c.skip(t, "this version does not")
	}
}

func declaresUserNamespaces(t *testing.T, c *column) {
	if !c.features(t).GetUserNamespaces() {
		if c.isNspawn() {
			c.skip(t, noUserNamespaces)
		}
		if !c.usesRunc() {
			t.Error("it does not")
		}
		c.skip(t, "this version does not")
	}
}

func optionsTable(t *testing.T, c *column) {
	other := *c
	other.handler = c.withOptions()
	p := other.pod(t)
	one := p.run("a", forever())
	if out := one.exec("echo", "hello"); out != "hello\n" {
		t.Errorf("exec: %q", out)
	}
}

func unknownHandler(t *testing.T, c *column) {
	if _, err := c.runtime.RunPodSandbox(testContext(t), c.podConfig(t), "no-such-handler"); err == nil {
		t.Error("it ran a pod")
	}
}
