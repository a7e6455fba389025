package early

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// frontProgram is the file name of the program that containerd executes.
const frontProgram = "containerd-shim-rkt-v1"

// FindServer returns the path of a server program. It looks near the running executable,
// and then near the shim in $PATH, because a client may name the shim by its path, and that path may
// be a copy of the executable alone. Stage1 images are found in the same way.
func FindServer(name string) (string, error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", err
	}
	looked := ServerPlaces(filepath.Dir(exe), name)
	if path := firstFile(looked); path != "" {
		return path, nil
	}
	for _, dir := range strings.Split(os.Getenv("PATH"), ":") {
		front, err := filepath.EvalSymlinks(filepath.Join(dir, frontProgram))
		if err != nil || dir == "" {
			continue
		}
		other := ServerPlaces(filepath.Dir(front), name)
		if path := firstFile(other); path != "" {
			return path, nil
		}
		if other[0] != looked[0] {
			looked = append(looked, other...)
		}
		break
	}
	return "", fmt.Errorf("the shim's server program is missing: there is no %s; install this release again, as a whole", strings.Join(looked, " and no "))
}

// replacement returns the path of the program that has replaced the running one, or an empty string.
func replacement() string {
	exe, err := os.Readlink("/proc/self/exe")
	path, deleted := strings.CutSuffix(exe, " (deleted)")
	if err != nil || !deleted || firstFile([]string{path}) == "" {
		return ""
	}
	return path
}

// ServerPlaces returns the paths at which a server program may be that belongs to a front in bin.
func ServerPlaces(bin, name string) []string {
	return []string{filepath.Join(bin, name), filepath.Join(filepath.Dir(bin), "libexec", "containerd-shim-rkt", name)}
}

func firstFile(paths []string) string {
	for _, path := range paths {
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
