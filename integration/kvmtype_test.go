package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

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

		// As `docker network connect` does: the machine does not get it, and follows the changes of what it has.
		pod.attach(t, clients, "net1", "198.51.100.", "2001:db8:1::")
		for link, number := range map[netns]string{clients: "1", pod: "7"} {
			link.run(t, "ip addr add 203.0.113."+number+"/24 dev eth0")
		}
		clients.expectEcho(t, "203.0.113.7")
		if r := c.run(t, append([]string{"--rm"}, member...), c.id(), "sh", "-c", "ip link show net1 || exit 4"); r.code != 4 {
			t.Errorf("a container that joins the changed network: %d, %s", r.code, r.stderr)
		}
		// A link that is down has gone, for a moment.
		pod.run(t, "ip link set eth0 down")
		wait.Observe(t, "the machine's interface has no address", func() (bool, string) {
			r := c.exec(t, nil, id, "ip", "addr", "show", "dev", "eth0")
			return r.code == 0 && !strings.Contains(r.stdout, "192.0.2.7"), r.stdout + r.stderr
		})
		pod.run(t, "ip link set eth0 up")
		clients.expectEcho(t, "192.0.2.7")
		c.ctr(t, "task", "kill", "--signal", "KILL", id).must(t)
		wait.Until(t, "the container has stopped", func() bool { _, state := c.status(t, id); return state == "STOPPED" })
		c.ctr(t, "task", "rm", id)
		c.ctr(t, "container", "rm", id).must(t)
		c.expectNothingLeft(t)
	})
}

// ctr --cni attaches the network when the container is made and not yet started.
func TestAMicroVMDoesNotStartWithoutTheNetworkThatItGetsTooLate(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		clients := newNetns(t)
		task := c.task(t, []string{"true"}, oci.WithAnnotations(map[string]string{typeAnnotation: "microvm"}))
		bridge(t, clients, netns(fmt.Sprintf("/proc/%d/ns/net", task.Pid())))
		const want = "the network namespace: the link eth0: a machine of the type microvm gets no network interface after its boot"
		if err := task.Start(c.context(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("start: %v, without %q", err, want)
		}
		c.drop(t, task)
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
