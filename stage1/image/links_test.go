package image

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// An image that is only imported, and executes nothing yet, must not make or read
// anything outside the store.
func TestLinksWhereAPodMountsItsDirectoriesAreRefusedByName(t *testing.T) {
	stage1test.RequireRoot(t)
	outside := t.TempDir()
	for name, c := range map[string]struct {
		path, target string // of a link in the image
		words        string // in the error
	}{
		"opt leads out":          {"rootfs/opt", outside, "rootfs/opt has to be a directory"},
		"opt leads out by dots":  {"rootfs/opt", "../../../../../../../.." + outside, "rootfs/opt has to be a directory"},
		"opt leads inside":       {"rootfs/opt", "usr", "rootfs/opt has to be a directory"},
		"opt/stage2 leads out":   {"rootfs/opt/stage2", outside, "rootfs/opt/stage2 has to be a directory"},
		"rkt leads out":          {"rootfs/rkt", outside + "/new", "rootfs/rkt has to be a directory"},
		"rootfs leads out":       {"rootfs", outside, "rootfs"},
		"the manifest leads out": {"manifest", filepath.Join(outside, "manifest"), "manifest"},
		"the manifest is a fifo": {"manifest", "", "manifest"},
		"opt/stage2 is a file":   {"rootfs/opt/stage2", "", "rootfs/opt/stage2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stage1test.Dir(t, nil)
			at := filepath.Join(dir, c.path)
			if c.path == "rootfs" || c.path == "manifest" {
				if err := os.Rename(at, filepath.Join(outside, c.path)); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.RemoveAll(filepath.Join(outside, c.path)) })
			}
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			var err error
			switch target := c.target; {
			case target != "":
				if c.path == "rootfs" {
					target = filepath.Join(target, c.path)
				}
				err = os.Symlink(target, at)
			case c.path == "manifest":
				err = unix.Mkfifo(at, 0o644)
			default:
				err = os.WriteFile(at, nil, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			before := listing(t, outside)
			aci := filepath.Join(t.TempDir(), "image.aci")
			if out, err := exec.Command("tar", "-C", dir, "-cf", aci, "manifest", "rootfs").CombinedOutput(); err != nil {
				t.Fatalf("tar: %v: %s", err, out)
			}
			for form, source := range map[string]string{"directory": dir, "ACI": aci} {
				_, err := openStore(t).Image(t.Context(), source, "")
				if err == nil || !strings.Contains(err.Error(), c.words) {
					t.Errorf("%s: %v, want %q", form, err, c.words)
				}
			}
			if after := listing(t, outside); after != before {
				t.Errorf("outside were\n%s\nand now are\n%s", before, after)
			}
		})
	}
}

// listing returns the names of all files below a directory.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var names strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		names.WriteString(path + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names.String()
}

// In a pod of version 7, stage 0 mounts the pod's own directories on these. What would be executed there can be written.
func TestAnEntrypointWhereAPodMountsItsDirectoriesIsRefused(t *testing.T) {
	stage1test.RequireRoot(t)
	for name, c := range map[string]struct {
		version string
		path    string // of the entrypoint
		target  string // if it is a link
		refused bool
	}{
		"in rkt":               {version: "7", path: "/rkt/gc", refused: true},
		"in opt/stage2":        {version: "7", path: "/opt/stage2/bin/gc", refused: true},
		"a link into rkt":      {version: "7", path: "/gc", target: "rkt/gc", refused: true},
		"a link elsewhere":     {version: "7", path: "/gc", target: "bin/gc"},
		"in opt":               {version: "7", path: "/opt/gc"},
		"in rkt, of version 6": {version: "6", path: "/rkt/gc"},
	} {
		t.Run(name, func(t *testing.T) {
			of := stage1test.Image{Annotations: map[string]string{abi.AnnotationVersion: c.version, abi.AnnotationPrefix + string(abi.GC): c.path}}
			dir := of.Dir(t)
			program := filepath.Join(dir, "rootfs", c.path)
			if c.target != "" {
				if err := os.Symlink(c.target, program); err != nil {
					t.Fatal(err)
				}
				program = filepath.Join(dir, "rootfs", c.target)
			}
			if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			_, err := openStore(t).Image(t.Context(), dir, "")
			if refused := err != nil && strings.Contains(err.Error(), "mounts a directory of the pod"); refused != c.refused || err != nil && !refused {
				t.Errorf("%v; want it refused: %t", err, c.refused)
			}
		})
	}
}
