package mount

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOldKernelsBindADirectoryReadOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	from, to := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := bindReadOnly(from, to); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "f"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing: %v", err)
	}
	if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
		t.Error(err)
	}
}

func TestADirectoryOnAnUnbindableMountIsRefusedWithTheReason(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts need root")
	}
	from := t.TempDir()
	if err := unix.Mount("tmpfs", from, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(from, unix.MNT_DETACH) })
	if err := unix.Mount("", from, "", unix.MS_UNBINDABLE, ""); err != nil {
		t.Fatal(err)
	}
	if err := ReadOnly(from, t.TempDir()); err == nil || !strings.Contains(err.Error(), "it is on an unbindable mount") {
		t.Error(err)
	}
}
