package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// installed is the name of the program beside which stage1 images are installed.
const installed = "containerd-shim-rkt-v1"

// Locate returns the directory of a stage1 that comes with the shim. It looks beside the
// running executable, after resolving links, and then beside the shim in $PATH. The second
// place is needed because a client may name a shim by its path, and that path may be a copy
// of the executable without images.
func Locate(name string) (string, error) {
	bins, err := programDirs()
	if err != nil {
		return "", fmt.Errorf("find stage1 %s: %w", name, err)
	}
	return locate(name, bins...)
}

// Installed returns the names of the stage1s that Locate finds, sorted.
func Installed() (names []string, err error) {
	defer prefix(&err, "find the installed stage1s")
	bins, err := programDirs()
	if err != nil {
		return nil, err
	}
	for _, place := range places(bins) {
		found, err := filepath.Glob(filepath.Join(place, "*", "manifest"))
		if err != nil {
			return nil, err
		}
		for _, manifest := range found {
			// Names with a dot are directories that `make` has not finished.
			if name := filepath.Base(filepath.Dir(manifest)); name[0] != '.' {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// programDirs returns the directories of the programs near which images are searched, in
// order.
func programDirs() ([]string, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	bins := []string{filepath.Dir(exe)}
	if other, err := exec.LookPath(installed); err == nil {
		if other, err = filepath.EvalSymlinks(other); err == nil {
			bins = append(bins, filepath.Dir(other))
		}
	}
	return slices.Compact(bins), nil
}

// places returns the directories of images that belong to directories of programs.
func places(bins []string) []string {
	var all []string
	for _, bin := range bins {
		all = append(all, filepath.Join(bin, "stage1"), filepath.Join(filepath.Dir(bin), "libexec", "containerd-shim-rkt", "stage1"))
	}
	return all
}

// locate searches for an image near the directories of some executables, in order.
func locate(name string, bins ...string) (string, error) {
	if name == "" || name != filepath.Base(name) || name == "." || name == ".." {
		return "", invalid("stage1 name %q: it has to be a single word", name)
	}
	var looked []string
	for _, place := range places(bins) {
		dir := filepath.Join(place, name)
		if _, err := os.Stat(filepath.Join(dir, "manifest")); err == nil {
			return dir, nil
		}
		looked = append(looked, dir)
	}
	if slices.ContainsFunc(bins, isKept) {
		return "", fmt.Errorf("this runtime is being removed from the node, and stays only for the pods that run: no new pod can have stage1 %s "+
			"until the runtime is installed again: %w", name, errdefs.ErrNotFound)
	}
	where := "put its image (manifest and rootfs/) into " + strings.Join(looked, " or ")
	if from := Elsewhere(name, runtime.GOARCH); from != "" {
		where = from + ", or " + where
	}
	return "", fmt.Errorf("there is no stage1 called %s: %s: %w", name, where, errdefs.ErrNotFound)
}

// isKept reports whether a directory of programs is that of an installation that was removed while pods were running:
// scripts/retire keeps the programs for them, without images.
func isKept(bin string) bool {
	return filepath.Base(bin) == "kept" && filepath.Base(filepath.Dir(bin)) == "containerd-shim-rkt"
}

// Elsewhere says where the image of a stage1 comes from that the shim has a link for, and that is not
// installed with it. It is empty for other stage1s.
func Elsewhere(name, arch string) string {
	switch {
	case name != "kvm":
		return ""
	case arch != "amd64":
		return "virtual machines are for amd64 only, and this host is " + arch
	default:
		return "install the package containerd-shim-rkt-kvm of this version (docs/install.md)"
	}
}
