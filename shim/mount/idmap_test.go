package mount_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/shim/mount"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// snapd mounts files of mount namespaces below /run/snapd/ns. The kernel maps no ids of such a mount, and before Linux 6.18
// attaches no copy of it.
func TestATreeWithAPinnedMountNamespaceMayBeMapped(t *testing.T) {
	needRoot(t)
	source, dir := t.TempDir(), target(t)
	file := filepath.Join(source, "pin")
	mapped := &types.Mount{Type: "bind", Source: source, Options: []string{"rbind", "uidmap=0:100000:65536", "gidmap=0:200000:65536"}}
	for _, err := range []error{
		unix.Mount(source, source, "", unix.MS_BIND, ""), unix.Mount("", source, "", unix.MS_PRIVATE, ""),
		os.WriteFile(file, []byte("covered"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(source, unix.MNT_DETACH) })
	if err := mount.Mount(t.Context(), mapped, dir); err != nil {
		t.Skipf("this kernel maps no ids here: %v", err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	pin(t, file)
	if err := mount.Mount(t.Context(), mapped, dir); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "pin"), &st); err != nil || st.Uid != 100000 || st.Gid != 200000 {
		t.Errorf("the file that is covered: owner %d:%d, %v", st.Uid, st.Gid, err)
	}
}

// pin mounts the file of a new mount namespace. The kernel accepts only one with a higher number than the caller's, and
// numbers them per processor since Linux 6.18.
func pin(t *testing.T, file string) {
	t.Helper()
	err := error(unix.EINVAL)
	for i := 0; i < 100 && err == unix.EINVAL; i++ {
		owner := exec.Command("sleep", "1000")
		owner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		err = unix.Mount(fmt.Sprintf("/proc/%d/ns/mnt", owner.Process.Pid), file, "", unix.MS_BIND, "")
		_ = owner.Process.Kill()
		_ = owner.Wait() // always an error: it was killed
	}
	if err != nil {
		t.Fatal(err)
	}
}
