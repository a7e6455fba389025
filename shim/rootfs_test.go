package shim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// target makes a mount point that is left clean.
func mountPoint(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount")
	}
	dir := t.TempDir()
	t.Cleanup(func() { _ = mount.UnmountRecursive(dir, unix.MNT_DETACH) })
	return dir
}

func mountsUnder(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), " "+dir)
}

// requirements.md#M1
func TestMountsAreMadeInOrderAndBelowTheTarget(t *testing.T) {
	dir := mountPoint(t)
	src := t.TempDir()
	if err := os.WriteFile(filepath.Join(src, "f"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The second mount point is in the first mount.
	first := t.TempDir()
	if err := os.Mkdir(filepath.Join(first, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRootfs([]*types.Mount{
		{Type: "bind", Source: first, Options: []string{"rbind", "rw"}},
		{Type: "bind", Source: src, Target: "sub", Options: []string{"rbind", "ro"}},
	}, children)
	if r.Empty() {
		t.Error("Empty with mounts")
	}
	if err := r.Mount(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "sub/f")); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sub/g"), nil, 0o600); err == nil {
		t.Error("the second mount is not read-only")
	}
}

// requirements.md#M2
func TestAFailedMountUndoesTheOthers(t *testing.T) {
	dir := mountPoint(t)
	r := newRootfs([]*types.Mount{
		{Type: "tmpfs", Source: "tmpfs"},
		{Type: "bind", Source: "/no/such/source", Options: []string{"rbind"}},
	}, children)
	err := r.Mount(t.Context(), dir)
	if err == nil || !strings.Contains(err.Error(), "/no/such/source") {
		t.Errorf("error %v", err)
	}
	if n := mountsUnder(t, dir); n != 0 {
		t.Errorf("%d mounts are left", n)
	}
}

// requirements.md#M2
func TestAClientThatHasGoneGetsNothingMounted(t *testing.T) {
	dir := mountPoint(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := newRootfs([]*types.Mount{{Type: "tmpfs", Source: "tmpfs"}}, children)
	if err := r.Mount(ctx, dir); err == nil {
		t.Error("mounted")
	}
	if n := mountsUnder(t, dir); n != 0 {
		t.Errorf("%d mounts are left", n)
	}
}

// requirements.md#M5
func TestNoMountsAreAnEmptyRootfs(t *testing.T) {
	if !newRootfs(nil, children).Empty() {
		t.Error("not empty")
	}
}

// requirements.md#M1
func TestSixtyLayersWithLongNamesAreMounted(t *testing.T) {
	dir := mountPoint(t)
	base := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	var lower []string
	for i := range 60 {
		layer := filepath.Join(base, fmt.Sprint(i), "fs")
		if err := os.MkdirAll(layer, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(layer, fmt.Sprint("f", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		lower = append(lower, layer)
	}
	opt := "lowerdir=" + strings.Join(lower, ":")
	if len(opt) < os.Getpagesize() {
		t.Fatalf("the option has only %d bytes", len(opt))
	}
	r := newRootfs([]*types.Mount{{Type: "overlay", Source: "overlay", Options: []string{opt}}}, children)
	if err := r.Mount(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"f0", "f59"} {
		if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
			t.Error(err)
		}
	}
}

// containerd's mount manager does this work before it sends mounts to a shim, but a client of
// another kind may not.
func TestWorkOfContainerdsMountManagerIsRefusedByName(t *testing.T) {
	dir := mountPoint(t)
	r := newRootfs([]*types.Mount{
		{Type: "tmpfs", Source: "tmpfs"},
		{Type: "mkfs/ext4", Source: "/image", Options: []string{"X-containerd.mkfs.size=1048576"}},
	}, children)
	err := r.Mount(t.Context(), dir)
	if !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), `type mkfs/ext4: containerd's mount manager has to do the work of "mkfs" first`) {
		t.Errorf("error %v", err)
	}
	if n := mountsUnder(t, dir); n > 0 {
		t.Errorf("%d mounts are left", n)
	}
}
