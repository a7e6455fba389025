package container

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// mountedAs returns a directory of the host that is mounted with these flags.
func mountedAs(t *testing.T, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("volume", dir, "tmpfs", 0, "mode=777"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o666))
	must(t, os.Chmod(filepath.Join(dir, "file"), 0o666))
	must(t, unix.Mount("", dir, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""))
	return dir
}

// needMappedTmpfs skips a test if the kernel cannot map the ids of a tmpfs (before Linux 6.3).
func needMappedTmpfs(t *testing.T) {
	t.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	must(t, err)
	var major, minor int
	if n, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); n < 2 {
		t.Fatal(err)
	}
	if major < 6 || major == 6 && minor < 3 {
		t.Skipf("Linux %s cannot map the ids of a tmpfs", release)
	}
}

// A process in a user namespace must not clear the flags of a mount that it has from outside
// (mount_namespaces(7)). Neither may the supervisor do it for the app.
func TestABindMountInAUserNamespaceKeepsTheFlagsOfItsSource(t *testing.T) {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	mappings := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	for _, c := range []struct {
		source  uintptr
		options []string
		want    string // flags, or words of the error
		fails   bool
	}{
		{safe, nil, " rw,nosuid,nodev,noexec,", false},
		{safe, []string{"ro"}, " ro,nosuid,nodev,noexec,", false},
		{safe, []string{"rw"}, " rw,nosuid,nodev,noexec,", false},
		{safe, []string{"rro"}, " ro,nosuid,nodev,noexec,", false},
		{safe, []string{"rslave", "nosymfollow"}, " rw,nosuid,nodev,noexec,relatime,nosymfollow", false},
		{safe, []string{"exec"}, "nosuid,nodev,noexec,relatime", true},
		{safe, []string{"suid"}, "nosuid,nodev,noexec,relatime", true},
		{safe, []string{"dev"}, "nosuid,nodev,noexec,relatime", true},
		{safe, []string{"rdev"}, "nosuid,nodev,noexec,relatime", true},
		{unix.MS_RDONLY, nil, " ro,relatime", false},
		{unix.MS_RDONLY, []string{"nosuid"}, " ro,nosuid,relatime", false},
		{unix.MS_RDONLY, []string{"rw"}, "ro,relatime", true},
		{unix.MS_RDONLY, []string{"rrw"}, "ro,relatime", true},
		{unix.MS_NOATIME, []string{"ro"}, " ro,noatime", false},
		{unix.MS_NOATIME, []string{"noatime"}, " rw,noatime", false},
		{unix.MS_NOATIME, []string{"strictatime"}, "noatime", true},
		{0, []string{"rw", "exec", "suid", "dev", "relatime"}, " rw,relatime", false},
		{0, []string{"noatime"}, "relatime", true},
		{0, []string{"rnoatime"}, "relatime", true},
	} {
		for _, kind := range []string{"directory", "file", "id-mapped"} {
			t.Run(fmt.Sprintf("%x %s %s", c.source, c.options, kind), func(t *testing.T) {
				m := bindOf(mountedAs(t, c.source), "/m", c.options...)
				switch kind {
				case "file":
					m.Source += "/file"
				case "id-mapped":
					needMappedTmpfs(t)
					m.UIDMappings, m.GIDMappings = mappings, mappings
				}
				b := newBox(t).sh("cat /proc/self/mountinfo").mount(m)
				b.userNamespace(100000)
				if !c.fails {
					contains(t, lineOf(t, b.ok(), "/m"), c.want)
					return
				}
				text := b.fails()
				contains(t, text, "mount "+m.Source+" on /m: ")
				contains(t, text, "the source is mounted with "+c.want+", and in a user namespace")
			})
		}
	}
}

// The app may be root in its user namespace, with every capability there.
func TestAnAppCannotUndoInItsUserNamespaceHowTheHostHasMountedAVolume(t *testing.T) {
	volume := mountedAs(t, 0)
	hidden := filepath.Join(volume, "below")
	must(t, os.MkdirAll(filepath.Join(hidden, "hidden"), 0o777))
	must(t, unix.Mount("cover", hidden, "tmpfs", unix.MS_NOSUID, ""))
	t.Cleanup(func() { must(t, unix.Unmount(hidden, unix.MNT_DETACH)) })
	b := newBox(t).sh(`
		mkdir /again
		try() { if "$@" 2>/dev/null; then echo "undone: $*"; fi; }
		try mount -o remount,bind,rw /readonly
		try mount -o remount,bind,rw /readonly-twice
		try mount -o remount,bind,suid,dev,exec /safe
		try mount -o remount,bind,strictatime /noatime
		try mount -o remount,bind,rw,suid /volume/below
		try umount /volume/below
		try mount -o bind /volume /again
		mount -o bind /readonly /again
		try mount -o remount,bind,rw /again
		for d in /readonly /readonly-twice /again; do try touch $d/x; done
		ls /volume/below /again
		mount -o remount,bind,ro /plain; mount -o remount,bind,rw /plain; touch /plain/x`).mount(
		bindOf(mountedAs(t, unix.MS_RDONLY), "/readonly"),
		bindOf(mountedAs(t, unix.MS_RDONLY), "/readonly-twice", "ro"),
		bindOf(mountedAs(t, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC), "/safe"),
		bindOf(mountedAs(t, unix.MS_NOATIME), "/noatime"),
		bindOf(volume, "/volume"),
		bindOf(mountedAs(t, 0), "/plain", "ro"))
	must(t, os.Symlink("busybox", filepath.Join(b.rootfs, "bin/umount")))
	b.userNamespace(100000)
	out := b.ok()
	lacks(t, out, "undone: ")
	lacks(t, out, "hidden")
}

func TestABindMountInAUserNamespaceDoesNotShowWhatTheHostHasCovered(t *testing.T) {
	volume := mountedAs(t, 0)
	covered := filepath.Join(volume, "covered")
	must(t, os.MkdirAll(filepath.Join(covered, "hidden"), 0o777))
	must(t, unix.Mount("cover", covered, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(covered, unix.MNT_DETACH)) })
	plain := specs.Mount{Source: volume, Destination: "/m", Type: "bind", Options: []string{"bind"}}
	b := newBox(t).sh("ls /m/covered").mount(plain)
	b.userNamespace(100000)
	contains(t, b.fails(), "mount "+volume+" on /m: open the source: invalid argument: a mount is below it, and in a user namespace only rbind")

	b = newBox(t).sh("ls /m/covered").mount(bindOf(volume, "/m"))
	b.userNamespace(100000)
	if out := b.ok(); out != "" {
		t.Errorf("found: %q", out)
	}
}

func TestARemountInAUserNamespaceKeepsTheFlagsOfTheSource(t *testing.T) {
	for _, c := range []struct {
		source uintptr
		option string
	}{{unix.MS_RDONLY, "rw"}, {unix.MS_NOSUID, "ro"}} {
		b := newBox(t).sh("true").mount(bindOf(mountedAs(t, c.source), "/m"),
			specs.Mount{Destination: "/m", Type: "none", Options: []string{"remount", "bind", c.option}})
		b.userNamespace(100000)
		contains(t, b.fails(), "on /m: operation not permitted")
	}
}
