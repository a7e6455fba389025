package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A container may be root in its user namespace, and may even mount there. The flags with which the
// host has mounted a volume, and what the host has covered with another mount, stay as they are.
func TestAVolumeInAUserNamespaceStaysAsTheHostHasMountedIt(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		if c.name == "nspawn" {
			t.Skip("it has no user namespaces")
		}
		volume, covered := t.TempDir(), t.TempDir()
		for _, dir := range []string{volume, covered} {
			must(t, unix.Mount("volume", dir, "tmpfs", 0, "mode=777"))
			t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
		}
		must(t, unix.Mount("", volume, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
		below := filepath.Join(covered, "below")
		must(t, os.MkdirAll(filepath.Join(below, "hidden"), 0o755))
		must(t, unix.Mount("cover", below, "tmpfs", 0, "mode=777"))
		t.Cleanup(func() { must(t, unix.Unmount(below, unix.MNT_DETACH)) })

		const base = 100_000
		ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: base, Size: 65_536}}
		for _, options := range [][]string{{"rbind"}, {"rbind", "ro"}, {"rbind", "rw"}} {
			ctx, id, img := c.context(t), c.id(), c.image(t, c.client)
			container, err := c.client.NewContainer(ctx, id, containerd.WithUserNSRemappedSnapshot(id, img, ids, ids), containerd.WithRuntime(c.runtime, nil),
				containerd.WithNewSpec(oci.WithImageConfig(img), oci.WithUserNamespace(ids, ids), oci.WithAddedCapabilities([]string{"CAP_SYS_ADMIN"}),
					oci.WithMounts([]specs.Mount{
						{Type: "bind", Source: volume, Destination: "/volume", Options: options},
						{Type: "bind", Source: covered, Destination: "/covered", Options: []string{"rbind"}},
					}),
					oci.WithProcessArgs("sh", "-c", `
						grep " /volume " /proc/self/mountinfo
						mount -o remount,bind,rw,suid,dev,exec /volume
						touch /volume/x && echo written
						umount /covered/below
						ls /covered/below`)))
			must(t, err)
			var out streams
			task, err := container.NewTask(ctx, out.creator(c, nil), containerd.WithUIDOwner(base), containerd.WithGIDOwner(base))
			if err != nil { // the option would clear a flag; runc 1.1 refuses each other option, too
				if len(options) == 1 || !strings.Contains(err.Error(), "operation not permitted") {
					t.Errorf("%s: %v", options, err)
				}
				continue
			}
			exited := c.wait(t, task)
			must(t, task.Start(ctx))
			<-exited
			deleteTask(t, ctx, task)
			got := out.stdout.String()
			if !strings.Contains(got, " ro,nosuid,nodev,noexec,") || strings.Contains(got, "written") || strings.Contains(got, "hidden") {
				t.Errorf("%s: %s", options, got)
			}
		}
	})
}
