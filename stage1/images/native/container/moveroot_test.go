package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// fresh tries to mount a new procfs and a new sysfs in a user namespace, as any process without a
// seccomp profile can.
const fresh = `for f in proc sysfs; do
	busybox unshare -Urmpnf busybox mount -t $f new /tmp 2>/dev/null && echo a new $f was mounted; done; true`

// noPivotRoot has the app's root entered as on a host that runs from an initramfs.
func (b *box) noPivotRoot() *box {
	b.once = true // a plan cannot do that
	b.spec.Linux.MaskedPaths = []string{"/proc/irq", "/sys/kernel"}
	b.request.Options = &abi.Options{NoPivotRoot: true}
	return b
}

func TestWithoutPivotRootNoKernelMountOfTheHostIsBelowTheRoot(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		if got := newBox(t).sh(fresh).noPivotRoot().ok(); got != "" {
			t.Error(got)
		}
	})
	t.Run("in a user namespace, in which the host's mounts are locked", func(t *testing.T) {
		if got := newBox(t).sh(fresh).noPivotRoot().userNamespace(100000).ok(); got != "" {
			t.Error(got)
		}
	})
	for what, propagation := range map[string]string{"": "", "shared ": "rshared"} {
		t.Run("beside a "+what+"procfs of a chroot", func(t *testing.T) {
			dir := kernelMountsOfAChroot(t)
			b := newBox(t).sh(fresh).noPivotRoot()
			b.spec.Linux.RootfsPropagation = propagation
			if got := b.ok(); got != "" {
				t.Error(got)
			}
			for _, f := range []string{"proc/1/comm", "sys/kernel/notes"} {
				if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
					t.Errorf("the host's mount has gone: %v", err)
				}
			}
		})
	}
	t.Run("a user namespace beside a procfs of a chroot", func(t *testing.T) {
		kernelMountsOfAChroot(t)
		if got := newBox(t).sh(fresh).noPivotRoot().userNamespace(100000).ok(); got != "" {
			t.Error(got)
		}
	})
	hidden := func(t *testing.T, where string) string {
		dir := kernelMountsOfAChroot(t)
		if where == "above" {
			dir = filepath.Dir(dir)
		}
		for range 2 {
			mountForTest(t, "tmpfs", dir)
		}
		return dir
	}
	for _, where := range []string{"at the directory", "above"} {
		t.Run("beside a hidden procfs of a chroot, "+where, func(t *testing.T) {
			cover := hidden(t, where)
			must(t, os.WriteFile(filepath.Join(cover, "file"), nil, 0o644))
			if got := newBox(t).sh(fresh).noPivotRoot().ok(); got != "" {
				t.Error(got)
			}
			if _, err := os.Stat(filepath.Join(cover, "file")); err != nil {
				t.Errorf("the host's mount has gone: %v", err)
			}
		})
	}
	t.Run("on the mount that hides a procfs of a chroot", func(t *testing.T) {
		cover := hidden(t, "above")
		b := newBox(t).sh(fresh).noPivotRoot()
		root := filepath.Join(cover, "root")
		must(t, os.Mkdir(root, 0o755))
		must(t, unix.Mount(b.rootfs, root, "", unix.MS_BIND, ""))
		b.request.Rootfs = root
		if got := b.ok(); got != "" {
			t.Error(got)
		}
	})
	t.Run("a user namespace beside a hidden procfs is refused", func(t *testing.T) {
		cover := hidden(t, "above")
		got := newBox(t).userNamespace(100000).sh(fresh).noPivotRoot().fails()
		contains(t, got, "remove the host's")
		contains(t, got, "the tmpfs at "+cover+" hides it")
	})
}

// kernelMountsOfAChroot makes a directory with a procfs and a sysfs, and another procfs on the first.
func kernelMountsOfAChroot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	dir = filepath.Join(dir, "with a space")
	for _, m := range [][2]string{{"proc", "proc"}, {"proc", "proc"}, {"sysfs", "sys"}} {
		must(t, os.MkdirAll(filepath.Join(dir, m[1]), 0o755))
		mountForTest(t, m[0], filepath.Join(dir, m[1]))
	}
	return dir
}

func mountForTest(t *testing.T, fstype, dir string) {
	t.Helper()
	must(t, unix.Mount(fstype, dir, fstype, 0, ""))
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

const replaceEnv = "TEST_REPLACE_ROOT"

// replaceRoot is the main function of a process in a mount namespace of its own. In place of the host's
// root, or of the initial filesystem below that, it makes a directory its root.
func replaceRoot(dir string, initial bool) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err == nil && initial {
		err = enterInitial()
	}
	if err == nil {
		err = ReplaceRoot(tree)
	}
	if err != nil {
		return err
	}
	return unix.Exec("/bin/sh", []string{"sh", "-ec", fresh + "; ls -d /bin /init; cat /proc/1/comm"}, []string{"PATH=/bin"})
}

// enterInitial enters the filesystem with which the kernel has begun, and mounts a procfs in it if
// it has a directory for that.
func enterInitial() error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	for err == nil {
		if err = unix.Unmount("/", unix.MNT_DETACH); errors.Is(err, unix.EINVAL) {
			break
		}
		err = errors.Join(err, unix.Setns(self, unix.CLONE_NEWNS))
	}
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	for _, dir := range []string{"/root", "/dev"} {
		if err := unix.Mount("proc", dir, "proc", 0, ""); !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

func TestReplaceRootLeavesNoMountOfTheHosts(t *testing.T) {
	for _, initial := range []bool{false, true} {
		b := newBox(t)
		cmd := exec.Command("/proc/self/exe", b.rootfs)
		cmd.Env = []string{fmt.Sprintf("%s=%v", replaceEnv, initial)}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		out, _ := cmd.CombinedOutput() // ls and cat fail
		if got := string(out); !strings.HasPrefix(got, "ls: /init: No such file or directory\n/bin\n") {
			t.Errorf("initial %v: %s", initial, got)
		}
	}
}

func runReplaceRoot() {
	if initial := os.Getenv(replaceEnv); initial != "" {
		runtime.LockOSThread()
		err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, "")
		if err == nil {
			err = unix.Unshare(unix.CLONE_FS)
		}
		fmt.Println(errors.Join(err, replaceRoot(os.Args[1], initial == "true")))
		os.Exit(1)
	}
}
