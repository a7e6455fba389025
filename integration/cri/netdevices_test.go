package cri

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
)

const networkCDI = `{
  "cdiVersion": "1.1.0",
  "kind": "rkt.test/nic",
  "devices": [{"name": "one", "containerEdits": {"netDevices": [{"hostInterfaceName": "data0", "name": "net1"}]}}]
}`

// TestNetworkDevicesOfADriverReachThePod makes the calls that a driver of dynamic resource
// allocation leads to: the device exists on the node, its claim becomes a device of CDI, and
// containerd adds it to the spec of a container, whose network namespace is its pod's.
func TestNetworkDevicesOfADriverReachThePod(t *testing.T) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	handlers := []node.Handler{
		{Name: "native", Runtime: nativeRuntime, Sandboxer: "podsandbox"},
		{Name: "native-shim", Runtime: nativeRuntime, Sandboxer: "shim"},
		{Name: "nspawn-shim", Runtime: nspawnRuntime, Sandboxer: "shim"},
	}
	reference := &column{name: "nics", number: len(suiteColumns) + 1, beside: handlers, handler: node.Handler{
		Name: "runc", Runtime: "io.containerd.runc.v2", Sandboxer: "podsandbox",
		Options: fmt.Sprintf("    BinaryName = %q\n", currentRunc),
	}}
	reference.open(t)
	specs := filepath.Join(reference.node.Dir(), "cdi")
	if err := os.MkdirAll(specs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(specs, "nic.json"), []byte(networkCDI), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, h := range append([]node.Handler{reference.handler}, handlers...) {
		c := *reference
		c.handler = h
		t.Run(h.Name, func(t *testing.T) { c.giveNetworkDevice(t) })
	}
}

func (c *column) giveNetworkDevice(t *testing.T) {
	t.Cleanup(func() { c.cleanUp(t) })
	onNode(t, "link", "add", "data0", "mtu", "1400", "type", "veth", "peer", "name", "peer0")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "peer0").Run() })
	onNode(t, "addr", "add", "192.0.2.7/24", "dev", "data0")
	claim := func(config *runtimeapi.ContainerConfig) {
		config.CDIDevices = []*runtimeapi.CDIDevice{{Name: "rkt.test/nic=one"}}
	}
	p := c.pod(t)
	a := p.run("a", forever(), claim)
	shown := a.exec("ip", "addr", "show", "net1")
	for _, want := range []string{"inet 192.0.2.7/24", "mtu 1400", ",UP"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the container's device lacks %q:\n%s", want, shown)
		}
	}
	a.stop(0)
	a.remove()
	// The device belongs to the pod's namespace now. It ends with the pod, as virtual ones do.
	if shown := p.run("b", forever()).exec("ip", "addr", "show", "net1"); !strings.Contains(shown, "192.0.2.7/24") {
		t.Errorf("the pod's device is\n%s", shown)
	}
	if _, err := p.tryRun("c", forever(), claim); err == nil || !strings.Contains(err.Error(), "data0") {
		t.Errorf("a device that is in the pod already: %v", err)
	}
	p.stop()
	p.remove()
	if _, err := os.Stat("/sys/class/net/data0"); err == nil {
		t.Error("the device is back on the node")
	}
}

func onNode(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}
