package container

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestParametersOfFilesystems(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		mount mount
		want  []parameter // nil: mount(2) has to do it
	}{
		{mount{Type: "tmpfs", Flags: unix.MS_NOSUID | unix.MS_NOATIME, Data: "mode=755,inode64"},
			[]parameter{{"mode", "755", false}, {"inode64", "", true}}},
		{mount{Type: "sysfs", Flags: unix.MS_RDONLY | unix.MS_SYNCHRONOUS}, []parameter{{"ro", "", true}, {"sync", "", true}}},
		{mount{Type: "debugfs", Flags: unix.MS_RDONLY, Data: "gid=1"}, []parameter{{"gid", "1", false}}},
		{mount{Type: "tmpfs", Data: `context="s:t:l:c1,c2",mode=1`},
			[]parameter{{"context", "s:t:l:c1,c2", false}, {"mode", "1", false}}},
		{mount{Type: "tmpfs", Data: `empty=,`}, []parameter{{"empty", "", false}}},
		{mount{Type: "cifs", Data: `pass=a,,b`}, nil},
		{mount{Type: "overlay", Data: "lowerdir=" + long}, nil},
		{mount{Type: "overlay", Data: `lowerdir=/a\:b:/c`}, nil},
		{mount{Type: "other", Data: `name="a,b"`}, nil},
		{mount{Type: "ext4", Source: long}, nil},
		{mount{Type: "ext4", Flags: unix.MS_I_VERSION}, nil},
		{mount{Type: "fuse.sshfs"}, nil},
	} {
		got, ok := c.mount.parameters()
		if ok != (c.want != nil) || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v %v", c.mount, got, ok)
		}
	}
}

// layers makes n directories with a file each, and returns their list for overlay's
// option lowerdir. The name of the first directory has a colon.
func layers(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	list := dir + `/0\:0`
	must(t, os.Mkdir(filepath.Join(dir, "0:0"), 0o755))
	for i := range n {
		layer := filepath.Join(dir, fmt.Sprint(i))
		if i == 0 {
			layer += ":0"
		} else {
			list += ":" + layer
			must(t, os.Mkdir(layer, 0o755))
		}
		must(t, os.WriteFile(filepath.Join(layer, fmt.Sprint("file", i)), nil, 0o644))
	}
	return list
}

func TestOverlaysOfManyLayers(t *testing.T) {
	for _, c := range []struct {
		user        bool
		propagation string
	}{{}, {user: true}, {propagation: "rshared"}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			lower, upper := layers(t, 12), t.TempDir()
			overlay := specs.Mount{Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + lower, "nosuid"}}
			first, second := overlay, overlay
			first.Destination, second.Destination = "/first", "/second"
			second.Options = append(second.Options[:2:2], "rprivate", "rro")
			if !c.user {
				must(t, os.Mkdir(filepath.Join(upper, "upper"), 0o755))
				must(t, os.Mkdir(filepath.Join(upper, "work"), 0o755))
				first.Options = append(first.Options[:2:2], "upperdir="+upper+"/upper", "workdir="+upper+"/work")
			}
			b := newBox(t).sh("ls /first | grep file; touch /first/new || true; cat /second/file11 /proc/self/mountinfo").mount(first, second)
			b.spec.Linux.RootfsPropagation = c.propagation
			if c.user {
				b.userNamespace(100000)
			}
			out := b.ok()
			contains(t, out, "file0\nfile1\nfile10\nfile11\n")
			contains(t, lineOf(t, out, "/first"), "nosuid,relatime")
			contains(t, lineOf(t, out, "/second"), " ro,nosuid,")
			if _, err := os.Stat(upper + "/upper/new"); err != nil && !c.user {
				t.Errorf("written to the overlay: %v", err)
			}
			lacks(t, out, "mode=700")
			host, err := os.ReadFile("/proc/self/mountinfo")
			must(t, err)
			lacks(t, string(host), b.rootfs)
		})
	}
}

func TestAllKindsOfMountsHoldWithTheCallsOfLinux514(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	mapped := bindOf(dir, "/mapped")
	mapped.UIDMappings = []specs.LinuxIDMapping{{ContainerID: 0, HostID: 5000, Size: 100}}
	mapped.GIDMappings = mapped.UIDMappings
	b := newBox(t).sh(`grep Seccomp: /proc/self/status; tty; ls -1 /copied /overlay; stat -c %u /mapped/file; cat /proc/self/mountinfo`).mount(
		bindOf(dir, "/bound", "rro", "nosymfollow", "rslave"),
		bindOf(filepath.Join(dir, "file"), "/made/file"),
		mapped,
		specs.Mount{Destination: "/copied", Type: "tmpfs", Source: "tmpfs", Options: []string{"ro", "tmpcopyup", "nosymfollow", "rshared"}},
		specs.Mount{Destination: "/copied", Options: []string{"remount", "bind", "nosuid"}},
		specs.Mount{Destination: "/overlay", Type: "overlay", Source: "overlay", Options: []string{"lowerdir=" + layers(t, 12)}},
		specs.Mount{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"ro"}})
	b.write("copied/there", "")
	b.spec.Linux.MaskedPaths = []string{"/proc/acpi", "/proc/scsi", "/proc/timer_list"}
	b.spec.Linux.ReadonlyPaths = []string{"/proc/sys"}
	b.spec.Root.Readonly = true
	b.request.Terminal = true
	b.aged = true
	out := strings.ReplaceAll(b.ok(), "\r\n", "\n")
	for _, want := range []string{"Seccomp:\t2\n", "/dev/pts/0\n", "there\n", "file11\n", "\n5000\n"} {
		contains(t, out, want)
	}
	contains(t, lineOf(t, out, "/bound"), " ro,relatime,nosymfollow ")
	contains(t, lineOf(t, out, "/copied"), " shared:")
	lineOf(t, out, "/sys/fs/cgroup")
	contains(t, lineOf(t, out, "/proc/sys"), " ro,")
}
