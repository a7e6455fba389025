package stage1

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// installed is the program that comes with stage1 images.
const installed = "containerd-shim-rkt-v1"

// Locate returns the directory of a stage1 that comes with the shim: beside the
// running executable, whatever link it was called through, or else beside the
// shim in $PATH. A client may name a shim by its path, and that may be a copy of
// the executable alone.
func Locate(name string) (string, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("find stage1 %s: %w", name, err)
	}
	bins := []string{filepath.Dir(exe)}
	if other, err := exec.LookPath(installed); err == nil {
		if other, err = filepath.EvalSymlinks(other); err == nil {
			bins = append(bins, filepath.Dir(other))
		}
	}
	return locate(name, slices.Compact(bins)...)
}

// locate looks around the directories of some executables, in their order.
func locate(name string, bins ...string) (string, error) {
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return "", invalid("stage1 name %q: it has to be a single word", name)
	}
	var places []string
	for _, bin := range bins {
		places = append(places,
			filepath.Join(bin, "stage1", name),
			filepath.Join(filepath.Dir(bin), "libexec", "containerd-shim-rkt", "stage1", name))
	}
	for _, dir := range places {
		if _, err := os.Stat(filepath.Join(dir, "manifest")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("there is no stage1 called %s: put its image (manifest and rootfs/) into %s: %w",
		name, strings.Join(places, " or "), errdefs.ErrNotFound)
}
