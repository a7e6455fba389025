package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

const (
	typeAnnotation   = "io.containerd.rkt.v1/kvm.type"
	memoryAnnotation = "io.containerd.rkt.v1/kvm.memory"
)

// The table of docs/stage1-kvm.md#type.
func TestAMicroVMHasWhatItBootsWithAndRefusesTheRestByName(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		pod, clients := newNetns(t), newNetns(t)
		pod.attach(t, clients, "eth0", "192.0.2.", "2001:db8::")
		volume, name := t.TempDir(), "group-"+c.id()
		member := []string{"--annotation", groupAnnotation + "=" + name, "--with-ns", "network:" + string(pod)}
		first := append([]string{
			"--annotation", typeAnnotation + "=microvm", "--annotation", memoryAnnotation + "=256Mi",
			"--mount", "type=bind,src=" + volume + ",dst=/volume,options=rbind:rw",
		}, member...)
		id := c.start(t, first, strings.Fields(echo)...)
		clients.expectEcho(t, "192.0.2.7")
		clients.expectEcho(t, "2001:db8::7")
		c.exec(t, nil, id, "sh", "-c", "echo written > /volume/file").must(t)
		if got, err := os.ReadFile(filepath.Join(volume, "file")); string(got) != "written\n" {
			t.Errorf("the volume has %q: %v", got, err)
		}
		if r := c.exec(t, nil, id, "sh", "-c", "exit 7"); r.code != 7 {
			t.Errorf("an exec has ended with %d: %s", r.code, r.stderr)
		}
		if devices := c.exec(t, nil, id, "ls", "/sys/bus/pci/devices").must(t).stdout; devices != "" {
			t.Errorf("the machine has devices of PCI: %s", devices)
		}
		// A second container fits, with a limit that the machine has room for.
		if r := c.run(t, append([]string{"--rm", "--memory-limit", "67108864"}, member...), c.id(), "sh", "-c", "exit 3"); r.code != 3 {
			t.Errorf("a second container has ended with %d: %s", r.code, r.stderr)
		}

		device, _, _ := loopDevice(t, "disk")
		for want, flags := range map[string][]string{
			"linux.resources.memory: the limits of the apps are 512 MiB, and the machine, which does not grow, has 256":     {"--memory-limit", "536870912"},
			"linux.resources.cpu: the limits of the apps are 1.500 processors, and the machine, which does not grow, has 1": {"--cpu-quota", "150000", "--cpu-period", "100000"},
			"a machine of the type microvm has no disks":                                                                    {"--mount", "type=bind,src=" + device + ",dst=/dev/disk,options=rbind:rw"},
		} {
			if r := c.run(t, append(append([]string{"--rm"}, flags...), member...), c.id(), "true"); r.code == 0 || !strings.Contains(r.stderr, want) {
				t.Errorf("%q: %d, %s", flags, r.code, r.stderr)
			}
		}

		// As `docker network connect` does: the machine does not get it, and keeps what it has.
		pod.attach(t, clients, "net1", "198.51.100.", "2001:db8:1::")
		const late = "the network namespace: a machine of the type microvm gets no network interface after its boot"
		wait.Observe(t, "a container that joins the changed network is refused", func() (bool, string) {
			r := c.run(t, append([]string{"--rm"}, member...), c.id(), "true")
			return r.code != 0 && strings.Contains(r.stderr, late), r.stderr
		})
		clients.expectEcho(t, "192.0.2.7")
		c.ctr(t, "task", "kill", "--signal", "KILL", id).must(t)
		wait.Until(t, "the container has stopped", func() bool { _, state := c.status(t, id); return state == "STOPPED" })
		c.ctr(t, "task", "rm", id)
		c.ctr(t, "container", "rm", id).must(t)
		c.expectNothingLeft(t)
	})
}

func TestAMachineOfAnUnknownTypeIsRefused(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		r := c.run(t, []string{"--rm", "--annotation", typeAnnotation + "=pc"}, c.id(), "true")
		if want := "annotation " + typeAnnotation + `: "pc" is neither q35 nor microvm`; r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%d: %s", r.code, r.stderr)
		}
		c.expectNothingLeft(t)
	})
}
