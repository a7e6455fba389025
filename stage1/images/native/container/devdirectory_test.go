package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// volumeWithNodes returns a directory with a subdirectory dev, like the host's /dev, which a pod may have as
// a volume. Its nodes have modes and owners of their own.
func volumeWithNodes(t *testing.T) string {
	t.Helper()
	volume := t.TempDir()
	dev := filepath.Join(volume, "dev")
	must(t, os.Mkdir(dev, 0o755))
	for name, number := range map[string]uint64{"null": unix.Mkdev(1, 3), "tty": unix.Mkdev(5, 0), "ptmx": unix.Mkdev(5, 2)} {
		must(t, unix.Mknod(filepath.Join(dev, name), unix.S_IFCHR|0o600, int(number)))
		must(t, os.Chown(filepath.Join(dev, name), 7, 8))
	}
	return volume
}

// contentOf describes all files of a directory: names, types, modes, owners, numbers.
func contentOf(t *testing.T, dir string) string {
	t.Helper()
	var lines []string
	must(t, filepath.Walk(dir, func(p string, _ os.FileInfo, err error) error {
		var st unix.Stat_t
		must(t, err)
		must(t, unix.Lstat(p, &st))
		lines = append(lines, fmt.Sprintf("%s %o %d:%d %x", strings.TrimPrefix(p, dir), st.Mode, st.Uid, st.Gid, st.Rdev))
		return nil
	}))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// devLeadsTo makes /dev of the image a link.
func (b *box) devLeadsTo(target string) *box {
	must(b.t, os.Remove(filepath.Join(b.rootfs, "dev")))
	must(b.t, os.Symlink(target, filepath.Join(b.rootfs, "dev")))
	return b
}

// CVE-2026-41579's class: a /dev of the image leads into a volume, in which the app's user may write nothing.
func TestADevOfTheImageThatLeadsIntoAVolumeChangesNothingThere(t *testing.T) {
	for name, change := range map[string]func(b *box, volume specs.Mount){
		"volume last": func(b *box, volume specs.Mount) { b.mount(volume) },
		// CRI sorts mounts by the depth of their destination: a volume may come before /dev/shm.
		"volume before /dev/shm": func(b *box, volume specs.Mount) {
			b.spec.Mounts = slices.Insert(b.spec.Mounts, 2, volume)
			b.mount(bindOf("/etc/hostname", "/dev/termination-log"))
		},
		"no mount on /dev": func(b *box, volume specs.Mount) {
			b.spec.Mounts = slices.DeleteFunc(b.spec.Mounts, func(m specs.Mount) bool { return strings.HasPrefix(m.Destination, "/dev") })
			b.mount(volume)
		},
		"no mount on /dev, but below": func(b *box, volume specs.Mount) {
			b.spec.Mounts = slices.DeleteFunc(b.spec.Mounts, func(m specs.Mount) bool { return m.Destination == "/dev" })
			b.spec.Mounts = slices.Insert(b.spec.Mounts, 1, volume)
		},
		"terminal": func(b *box, volume specs.Mount) { b.mount(volume); b.request.Terminal = true },
		"devices of the spec": func(b *box, volume specs.Mount) {
			b.mount(volume)
			mode, id := os.FileMode(0o666), uint32(1000)
			for _, d := range []string{"/dev/fuse", "/dev/net/tun", "/dev/tty", "/host/../dev/x", "/link/y"} {
				b.spec.Linux.Devices = append(b.spec.Linux.Devices, specs.LinuxDevice{Path: d, Type: "c", Major: 1, Minor: 3, FileMode: &mode, UID: &id, GID: &id})
			}
			b.spec.Linux.Devices[2].Major, b.spec.Linux.Devices[2].Minor = 5, 0
			b.spec.Linux.Devices = b.spec.Linux.Devices[:4]
		},
		"user namespace": func(b *box, volume specs.Mount) { b.mount(volume); b.userNamespace(100000) },
	} {
		for _, link := range []string{"host/dev", "/host/dev", "host/missing"} {
			t.Run(name+" "+link, func(t *testing.T) {
				volume := volumeWithNodes(t)
				b := newBox(t).sh("true").devLeadsTo(link)
				must(t, os.MkdirAll(filepath.Join(b.rootfs, "host"), 0o755))
				b.spec.Process.User = specs.User{UID: 1000, GID: 1000}
				b.spec.Process.Capabilities = nil
				b.spec.Process.NoNewPrivileges = true
				change(b, bindOf(volume, "/host", "rw"))
				before := contentOf(t, volume)
				if r := b.run(); r.failure != nil {
					t.Errorf("the app is not there: %+v", r.failure)
				}
				if after := contentOf(t, volume); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}

// A device outside of /dev may be in a volume only if the spec has said so, and not the image.
func TestADeviceWhoseDirectoryIsALinkIntoAVolumeIsRefused(t *testing.T) {
	volume := volumeWithNodes(t)
	b := newBox(t).sh("true").mount(bindOf(volume, "/host"))
	must(t, os.Symlink("host/dev", filepath.Join(b.rootfs, "link")))
	b.spec.Linux.Devices = []specs.LinuxDevice{{Path: "/link/x", Type: "c", Major: 1, Minor: 3}}
	before := contentOf(t, volume)
	contains(t, b.fails(), "make device /link/x: its directory is a link of the image into another mount, /host/dev")
	if after := contentOf(t, volume); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}

	b = newBox(t).sh("stat -c %t:%T /host/dev/x /run/y; readlink /var/run").mount(bindOf(volume, "/host"))
	must(t, os.Mkdir(filepath.Join(b.rootfs, "run"), 0o755))
	must(t, os.Mkdir(filepath.Join(b.rootfs, "var"), 0o755))
	must(t, os.Symlink("../run", filepath.Join(b.rootfs, "var/run")))
	b.spec.Linux.Devices = []specs.LinuxDevice{{Path: "/host/dev/x", Type: "c", Major: 1, Minor: 3}, {Path: "/var/run/y", Type: "c", Major: 1, Minor: 5}}
	if got := b.ok(); got != "1:3\n1:5\n../run\n" {
		t.Errorf("devices in a volume and below a link: %q", got)
	}
}

// An image may bring its own /dev, if the spec has none.
func TestNodesThatAreInTheImageKeepTheirModes(t *testing.T) {
	b := newBox(t).sh("stat -c '%a %u %t:%T' /dev/null /dev/zero; readlink /dev/ptmx")
	b.spec.Mounts = slices.DeleteFunc(b.spec.Mounts, func(m specs.Mount) bool { return strings.HasPrefix(m.Destination, "/dev") })
	must(t, unix.Mknod(filepath.Join(b.rootfs, "dev/null"), unix.S_IFCHR|0o640, int(unix.Mkdev(1, 3))))
	must(t, os.Chown(filepath.Join(b.rootfs, "dev/null"), 5, 5))
	must(t, os.WriteFile(filepath.Join(b.rootfs, "dev/ptmx"), nil, 0o644))
	if got := b.ok(); got != "640 5 1:3\n666 0 1:5\npts/ptmx\n" {
		t.Errorf("got %q", got)
	}

	b = newBox(t).sh("true")
	b.spec.Mounts = slices.DeleteFunc(b.spec.Mounts, func(m specs.Mount) bool { return strings.HasPrefix(m.Destination, "/dev") })
	b.write("dev/null", "")
	contains(t, b.fails(), "make device /dev/null: something else is in its place")
}

// With a rootfs in which the host has mounted its own /dev, that is not the image's.
func TestADevThatTheHostHasMountedInTheRootfsIsRefused(t *testing.T) {
	volume := volumeWithNodes(t)
	b := newBox(t).sh("true")
	b.spec.Mounts = slices.DeleteFunc(b.spec.Mounts, func(m specs.Mount) bool { return strings.HasPrefix(m.Destination, "/dev") })
	dev := filepath.Join(b.rootfs, "dev")
	must(t, unix.Mount(filepath.Join(volume, "dev"), dev, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dev, unix.MNT_DETACH)) })
	before := contentOf(t, volume)
	contains(t, b.fails(), "/dev is another mount than the root, so that its files may be the host's: have the spec mount a tmpfs on /dev")
	if after := contentOf(t, volume); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}
