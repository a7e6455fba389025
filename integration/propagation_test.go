package integration

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// sharedMount mounts a tmpfs that propagates mounts in both directions.
func sharedMount(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("shared", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", dir, "", syscall.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mountTmpfs(t *testing.T, dir, file string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, file), "")
}

func TestASlaveMountReceivesTheHostsMounts(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		dir := sharedMount(t)
		id := c.start(t, []string{"--rootfs-propagation", "rslave", "--privileged", "--mount", "type=bind,src=" + dir + ",dst=/m,options=rbind:rslave:rw"},
			"testprog", "sleep", "1000")
		mountTmpfs(t, filepath.Join(dir, "later"), "from-the-host")
		c.exec(t, nil, id, "ls", "/m/later").must(t).mustSay(t, "from-the-host\n")
		// No mount of the container propagates to the host.
		c.exec(t, nil, id, "sh", "-c", "mkdir /m/inside && mount -t tmpfs none /m/inside && touch /m/inside/mine").must(t)
		if exists(filepath.Join(dir, "inside/mine")) {
			t.Error("a mount made in the container reached the host")
		}
	})
}

func TestASharedMountGoesBothWays(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		dir := sharedMount(t)
		id := c.start(t, []string{"--rootfs-propagation", "rshared", "--privileged", "--mount", "type=bind,src=" + dir + ",dst=/m,options=rbind:rshared:rw"},
			"testprog", "sleep", "1000")
		mountTmpfs(t, filepath.Join(dir, "later"), "from-the-host")
		c.exec(t, nil, id, "ls", "/m/later").must(t).mustSay(t, "from-the-host\n")
		c.exec(t, nil, id, "sh", "-c", "mkdir /m/inside && mount -t tmpfs none /m/inside && touch /m/inside/mine").must(t)
		if !exists(filepath.Join(dir, "inside/mine")) {
			t.Error("a mount made in the container did not reach the host")
		}
		c.exec(t, nil, id, "umount", "/m/inside").must(t)
		if exists(filepath.Join(dir, "inside/mine")) {
			t.Error("an unmount in the container did not reach the host")
		}
	})
}

func TestAPrivateMountHearsNothing(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		dir := sharedMount(t)
		id := c.start(t, []string{"--mount", "type=bind,src=" + dir + ",dst=/m,options=rbind:rprivate:rw"}, "testprog", "sleep", "1000")
		mountTmpfs(t, filepath.Join(dir, "later"), "from-the-host")
		r := c.exec(t, nil, id, "ls", "/m/later").must(t)
		if strings.TrimSpace(r.stdout) != "" {
			t.Errorf("a private mount received %q", r.stdout)
		}
	})
}

func TestTheHostsMountTableIsLeftAlone(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		before := hostMounts(t)
		id := c.start(t, nil, "testprog", "sleep", "1000")
		for _, l := range hostMounts(t) {
			// Of a container's mounts only its root is visible outside.
			if strings.Contains(l, id) && !strings.Contains(l, "/rootfs ") {
				t.Errorf("mount %s", l)
			}
		}
		c.ctr(t, "task", "delete", "--force", id).must(t)
		after := hostMounts(t)
		if propagation(before) != propagation(after) {
			t.Errorf("propagation of / was %q and is %q", propagation(before), propagation(after))
		}
	})
}

func hostMounts(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(read(t, "/proc/self/mountinfo")), "\n")
}

// propagation returns the optional fields of the root mount.
func propagation(lines []string) string {
	for _, l := range lines {
		if f := strings.Fields(l); f[4] == "/" {
			before, _, _ := strings.Cut(l, " - ")
			return strings.Join(strings.Fields(before)[6:], " ")
		}
	}
	return ""
}
