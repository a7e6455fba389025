package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// user is a container of a machine. Without ids it has no user namespace.
type user struct {
	ids  []specs.LinuxIDMapping
	spec []oci.SpecOpts
}

// tryUser makes a container that runs the echo server.
func (c *column) tryUser(t *testing.T, u user) (containerd.Task, error) {
	t.Helper()
	ctx, id, img := c.context(t), c.id(), c.image(t, c.client)
	snapshot := containerd.WithNewSnapshot(id, img)
	spec := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithProcessArgs(strings.Fields(echo)...)}, u.spec...)
	if u.ids != nil {
		snapshot = containerd.WithUserNSRemappedSnapshot(id, img, u.ids, u.ids)
		spec = append(spec, oci.WithUserNamespace(u.ids, u.ids))
	}
	container, err := c.client.NewContainer(ctx, id, snapshot, containerd.WithNewSpec(spec...), containerd.WithRuntime(c.runtime, nil))
	if err != nil {
		t.Fatal(err)
	}
	task, err := container.NewTask(ctx, cio.NullIO)
	if err == nil {
		err = task.Start(ctx)
	}
	return task, err
}

// user is tryUser for a container that can be made.
func (c *column) user(t *testing.T, u user) containerd.Task {
	t.Helper()
	task, err := c.tryUser(t, u)
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// The containers of a machine are in one user namespace, and the machine's network belongs to it: root of a
// container has the rights over the network that it has with another stage1. On the host it is a user without rights.
func TestAMachineHasAUserNamespace(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		const base = 100_000
		ids := []specs.LinuxIDMapping{{HostID: base, Size: 65_536}}
		pod, clients := newNetns(t), newNetns(t)
		pod.attach(t, clients, "eth0", "192.0.2.", "2001:db8::")
		pod.run(t, "ip route add default via 192.0.2.1")
		dir := t.TempDir()
		must(t, os.Chmod(dir, 0o755))
		name := "group-" + c.id()
		inPod := []oci.SpecOpts{group(name), oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: string(pod)})}
		first := c.user(t, user{ids, append([]oci.SpecOpts{
			oci.WithAddedCapabilities([]string{"CAP_NET_ADMIN"}),
			oci.WithMounts([]specs.Mount{{Type: "bind", Source: dir, Destination: "/mnt", Options: []string{"rbind", "rw", "ridmap"}, UIDMappings: ids, GIDMappings: ids}}),
		}, inPod...)})

		clients.expectEcho(t, "192.0.2.7") // root of the container serves at port 80
		clients.expectEcho(t, "2001:db8::7")
		script := `read inside outside size </proc/self/uid_map; echo $inside $outside $size; id -u
			ls /sys/class/net/eth0/mtu; ip addr add 198.18.0.1/32 dev lo && ip addr show dev lo | grep -c 198.18.0.1
			ip route | grep -c 'default via 192.0.2.1'
			echo hello >/mnt/file; chown 7:8 /mnt/file; stat -c %u:%g /mnt/file; touch /own; stat -c %u:%g /own /bin/busybox`
		c.exec(t, nil, first.ID(), "sh", "-c", script).must(t).mustSay(t,
			"0 100000 65536\n0\n/sys/class/net/eth0/mtu\n1\n1\n7:8\n0:0\n0:0\n")
		info, err := os.Stat(filepath.Join(dir, "file"))
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != 7 || s.Gid != 8 {
			t.Errorf("on the host, the file of an id-mapped volume is of %d:%d", s.Uid, s.Gid)
		}
		if r := c.exec(t, nil, first.ID(), "sh", "-c", "echo 1 >/proc/sys/vm/drop_caches"); r.code == 0 {
			t.Error("root of the container has a right over the machine")
		}

		// As `docker network connect` does.
		pod.attach(t, clients, "net1", "198.51.100.", "2001:db8:1::")
		clients.expectEcho(t, "198.51.100.7")
		wait.Observe(t, "both links are in the statistics", func() (bool, string) {
			r := c.ctr(t, "task", "metrics", "--format", "json", first.ID())
			return strings.Contains(r.stdout, "eth0") && strings.Contains(r.stdout, "net1"), r.stdout + r.stderr
		})

		show := []string{"sh", "-c", "readlink /proc/self/ns/user; readlink /proc/self/ns/net; ip addr show dev eth0 | grep -c 192.0.2.7"}
		of := c.exec(t, nil, first.ID(), show...).must(t).stdout
		second := c.user(t, user{ids, append([]oci.SpecOpts{oci.WithProcessArgs("sleep", "1000")}, inPod...)})
		c.exec(t, nil, second.ID(), show...).must(t).mustSay(t, of)
		plain := c.user(t, user{nil, append([]oci.SpecOpts{oci.WithProcessArgs("sleep", "1000")}, inPod...)})
		if got := strings.Fields(c.exec(t, nil, plain.ID(), show...).must(t).stdout); got[1] != strings.Fields(of)[1] || got[0] == strings.Fields(of)[0] {
			t.Errorf("a container without a user namespace has %s, the pod's first one %s", got, of)
		}
		other := []specs.LinuxIDMapping{{HostID: 2 * base, Size: 65_536}}
		if _, err := c.tryUser(t, user{other, inPod}); err == nil || !strings.Contains(err.Error(), "linux.uidMappings") {
			t.Errorf("a container with other mappings: %v", err)
		}
	})
}

// Root of the user namespace is root of the machine's files then, and still may not read the agent's program.
func TestAUserNamespaceMayHoldTheUserZeroOfItsMachine(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		ids := []specs.LinuxIDMapping{{Size: 10}, {ContainerID: 10, HostID: 1000, Size: 65_526}}
		task := c.user(t, user{ids, nil})
		c.exec(t, nil, task.ID(), "sh", "-c", "id -u; wc -l </proc/self/uid_map").must(t).mustSay(t, "0\n2\n")
	})
}

// The network of a machine stays in its namespace, because containers are in it.
func TestAMachineWithoutAUserNamespaceGetsNoneLater(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		name := "group-" + c.id()
		c.user(t, user{nil, []oci.SpecOpts{group(name)}})
		ids := []specs.LinuxIDMapping{{HostID: 100_000, Size: 65_536}}
		if _, err := c.tryUser(t, user{ids, []oci.SpecOpts{group(name)}}); err == nil || !strings.Contains(err.Error(), "one user namespace") {
			t.Errorf("a container with a user namespace: %v", err)
		}
	})
}

// A cgroup to whose mount a container may write belongs to the container, which may divide it, and not change its limits.
func TestAContainerOfAMachineOwnsItsCgroup(t *testing.T) {
	eachOf(t, []string{"kvm"}, func(t *testing.T, c *column) {
		ids := []specs.LinuxIDMapping{{HostID: 100_000, Size: 65_536}}
		task := c.user(t, user{ids, []oci.SpecOpts{
			oci.WithMounts([]specs.Mount{{Type: "cgroup", Source: "cgroup", Destination: "/sys/fs/cgroup", Options: []string{"nosuid", "noexec", "nodev", "rw"}}}),
			oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.CgroupNamespace}),
		}})
		script := `cd /sys/fs/cgroup; mkdir own && echo $$ >own/cgroup.procs && cat /proc/self/cgroup; echo 1 >pids.max || echo refused`
		c.exec(t, nil, task.ID(), "sh", "-c", script).must(t).mustSay(t, "0::/own\nrefused\n")
	})
}
