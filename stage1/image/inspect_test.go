package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

func TestInspectTellsTheDigestThatTheStoreWouldAndLeavesNothing(t *testing.T) {
	stage1test.RequireRoot(t)
	dir := stage1test.Dir(t, nil)
	aci := filepath.Join(t.TempDir(), "image.aci")
	if err := os.WriteFile(aci, tarOf(t, imageEntries(t)...), 0o644); err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for _, source := range []string{dir, aci} {
		want, err := openStore(t).Image(t.Context(), source, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := (ACIs{}).Inspect(t.Context(), source)
		if err != nil || got.Digest() != want.Digest() || got.Name() != want.Name() || !got.Has(abi.Run) {
			t.Errorf("%s: %+v, %v; want the digest %s", source, got, err, want.Digest())
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestInspectRefusesWhatAStoreWould(t *testing.T) {
	dir := stage1test.Dir(t, nil)
	if err := os.Remove(filepath.Join(dir, "rootfs/run")); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "image.aci")
	if err := os.WriteFile(garbage, []byte("garbage"), 0o644); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{dir: "there is no such file", garbage: garbage, dir + "/nowhere": "no such file"} {
		if _, err := (ACIs{}).Inspect(t.Context(), source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", source, err, want)
		}
	}
}

func TestInstalledStage1sAreThoseThatLocateFinds(t *testing.T) {
	prefix := t.TempDir()
	for _, image := range []string{"libexec/containerd-shim-rkt/stage1/fly", "bin/stage1/oci", "bin/stage1/.new.x", "libexec/containerd-shim-rkt/stage1/oci"} {
		putManifest(t, filepath.Join(prefix, image))
	}
	if err := os.MkdirAll(filepath.Join(prefix, "bin/stage1/empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(prefix, "bin/containerd-shim-rkt-v1"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(prefix, "bin"))
	names, err := Installed()
	if err != nil || !slices.Equal(names, []string{"fly", "oci"}) {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		if _, err := Locate(name); err != nil {
			t.Error(err)
		}
	}
}
