package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pin mounts the file of a new mount namespace on a file. The kernel numbers namespaces per processor since
// Linux 6.18, and accepts only one with a higher number than the caller's.
func pin(t *testing.T, file string) error {
	for range 100 {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		err := unix.Mount(fmt.Sprintf("/proc/%d/ns/mnt", cmd.Process.Pid), file, "", unix.MS_BIND, "")
		if err != unix.EINVAL {
			return err
		}
	}
	return unix.EINVAL
}

func TestACopyOfMountsHasNoFileOfAMountNamespaceAndEveryOtherMount(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for mounts")
	}
	dir := t.TempDir()
	for _, step := range []func() error{
		func() error { return unix.Mount("tree", dir, "tmpfs", 0, "") },
		func() error { t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }); return nil },
		func() error { return unix.Mount("", dir, "", unix.MS_PRIVATE, "") },
		func() error { return os.WriteFile(filepath.Join(dir, "pin"), []byte("covered"), 0o644) },
		func() error { return os.Mkdir(filepath.Join(dir, "sub"), 0o755) },
		func() error { return unix.Mount("sub", filepath.Join(dir, "sub"), "tmpfs", 0, "") },
		func() error { return os.WriteFile(filepath.Join(dir, "sub/file"), nil, 0o644) },
		func() error { return pin(t, filepath.Join(dir, "pin")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for _, recursive := range []bool{true, false} {
		var c MountCopier
		for range 2 { // the second copy relies on what the first one has found
			tree, err := c.Copy(dir, recursive)
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close()
			at := fmt.Sprintf("/proc/self/fd/%d/", tree.Fd())
			if b, err := os.ReadFile(at + "pin"); err != nil || string(b) != "covered" {
				t.Errorf("recursive %t: pin has %q (%v), want the covered file", recursive, b, err)
			}
			if _, err := os.Stat(at + "sub/file"); (err == nil) != recursive {
				t.Errorf("recursive %t: sub/file: %v", recursive, err)
			}
			if err := attachElsewhere(int(tree.Fd()), dir); err != nil {
				t.Errorf("recursive %t: attach the copy: %v", recursive, err)
			}
		}
	}
	file, err := new(MountCopier).Copy(filepath.Join(dir, "pin"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil || fs.Type == unix.NSFS_MAGIC {
		t.Errorf("the copy of the file itself is the namespace (%v)", err)
	}
}

// attachElsewhere attaches a copy in a new mount namespace.
func attachElsewhere(tree int, dir string) error {
	return OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		return unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
}

func TestSpecialMountsAreFoundInMountinfo(t *testing.T) {
	const host = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
	for text, want := range map[string]bool{
		"":   false,
		host: false,
		host + "39 22 0:4 mnt:[4026532200] /run/snapd/ns/app.mnt rw - nsfs nsfs rw\n": true,
		"39 22 0:4 mnt:[4026532200] /n rw - nsfs nsfs rw":                             true,
		"39 22 0:4 net:[4026532200] /run/netns/a rw shared:3 - nsfs nsfs rw\n":        false,
		"40 22 8:1 / /mnt:[1] rw - ext4 mnt:[1] " + strings.Repeat("x", 10_000) + "\n" +
			"39 22 0:4 mnt:[4026532200] /n rw - nsfs nsfs rw\n": true,
		"40 22 0:9 / /o rw - overlay overlay rw,lowerdir=" + strings.Repeat("/layer:", 10_000) + "\n" +
			"39 22 0:4 mnt:[4026532200] /n rw - nsfs nsfs rw\n": true,
		"40 22 8:1 / /a rw,noatime master:1 unbindable - ext4 /dev/a rw\n":        true,
		"40 22 8:1 / unbindable unbindable - ext4 unbindable unbindable\n":        false,
		"40 22 8:1 / /a rw - ext4 " + strings.Repeat("1 2 3 mnt:[ ", 1000) + "\n": false,
	} {
		if got, err := hasSpecial(strings.NewReader(text)); err != nil || got != want {
			t.Errorf("%.80q: %t (%v), want %t", text, got, err, want)
		}
	}
}

// Kernels differ in whether a new mount namespace has its unbindable mounts as such.
func TestACopyHasTheUnbindableMountsThatARecursiveBindInANewNamespaceHas(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for mounts")
	}
	dir, target := t.TempDir(), t.TempDir()
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sub", sub, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(sub, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(sub, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", sub, "", unix.MS_UNBINDABLE, ""); err != nil {
		t.Fatal(err)
	}
	want, err := exec.Command("unshare", "--mount", "--propagation", "slave", "sh", "-c", `mount --rbind "$0" "$1" && ls "$1/sub"`, dir, target).Output()
	if err != nil {
		t.Fatal(err)
	}
	tree, err := new(MountCopier).Copy(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	_, err = os.Stat(fmt.Sprintf("/proc/self/fd/%d/sub/file", tree.Fd()))
	if seen := err == nil; seen != (string(want) == "file\n") {
		t.Errorf("the unbindable mount is in the copy: %t; a bind in a new namespace has %q", seen, want)
	}
}
