package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// pinnedTree returns a directory of the host with the file of a mount namespace, and another mount.
func pinnedTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tree", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	must(t, unix.Mount("sub", filepath.Join(dir, "sub"), "tmpfs", 0, ""))
	must(t, os.WriteFile(filepath.Join(dir, "sub/file"), nil, 0o644))
	file := filepath.Join(dir, "pin")
	must(t, os.WriteFile(file, []byte("covered\n"), 0o644))
	for range 100 { // since Linux 6.18, which namespaces the kernel accepts depends on the processor
		owner := exec.Command("sleep", "1000")
		owner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		must(t, owner.Start())
		err := unix.Mount(fmt.Sprintf("/proc/%d/ns/mnt", owner.Process.Pid), file, "", unix.MS_BIND, "")
		must(t, owner.Process.Kill())
		_ = owner.Wait() // always an error: it was killed
		if err != unix.EINVAL {
			must(t, err)
			return dir
		}
	}
	t.Fatal("the kernel accepts no mount namespace")
	return ""
}

func TestATreeWithAPinnedMountNamespaceIsBoundWithItsOtherMounts(t *testing.T) {
	ids := []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	for kind, change := range map[string]func(*box, *specs.Mount){
		"plain":            func(*box, *specs.Mount) {},
		"read-only":        func(_ *box, m *specs.Mount) { m.Options = append(m.Options, "rro") },
		"shared":           func(_ *box, m *specs.Mount) { m.Options = append(m.Options, "rshared") },
		"a read-only path": func(b *box, _ *specs.Mount) { b.spec.Linux.ReadonlyPaths = []string{"/volume"} },
		"a user namespace": func(b *box, _ *specs.Mount) { b.userNamespace(100000) },
		"id-mapped": func(_ *box, m *specs.Mount) {
			m.UIDMappings, m.GIDMappings, m.Options = ids, ids, append(m.Options, "ridmap")
		},
	} {
		t.Run(kind, func(t *testing.T) {
			if kind == "id-mapped" {
				needMappedTmpfs(t)
			}
			for range 3 {
				b := newBox(t).sh("cat /volume/pin; cd /volume; ls sub")
				m := bindOf(pinnedTree(t), "/volume")
				change(b, &m)
				if out, want := b.mount(m).ok(), "covered\nfile\n"; out != want {
					t.Errorf("%q, want %q", out, want)
				}
			}
		})
	}
}
