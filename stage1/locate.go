package stage1

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
)

// Locate returns the directory of a stage1 that comes with the shim: beside the
// running executable, whatever link it was called through.
func Locate(name string) (string, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("find stage1 %s: %w", name, err)
	}
	return locate(filepath.Dir(exe), name)
}

func locate(bin, name string) (string, error) {
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return "", invalid("stage1 name %q: it has to be a single word", name)
	}
	places := []string{
		filepath.Join(bin, "stage1", name),
		filepath.Join(filepath.Dir(bin), "libexec", "containerd-shim-rkt", "stage1", name),
	}
	for _, dir := range places {
		if _, err := os.Stat(filepath.Join(dir, "manifest")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("there is no stage1 called %s: put its image (manifest and rootfs/) into %s: %w",
		name, strings.Join(places, " or "), errdefs.ErrNotFound)
}
