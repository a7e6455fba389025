package doctor

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// inventoryFile lists the files of an installation, below its prefix. A line has four words:
// path, mode, kind (dir, file or link), and the SHA-256 sum of a file or the target of a link. The package of
// machines has a list of its own.
const (
	inventoryFile     = "share/containerd-shim-rkt/inventory"
	machinesInventory = inventoryFile + "-kvm"
)

// namedFiles is the number of files of the installation that findings name.
const namedFiles = 5

// inventory compares the files of the installation to which the shim belongs with their
// inventory. An installation without one is not compared.
func (e *examination) inventory(area, shim string) {
	real, err := filepath.EvalSymlinks(shim)
	if err != nil {
		return
	}
	prefix := filepath.Dir(filepath.Dir(real))
	for _, file := range []string{inventoryFile, machinesInventory} {
		if list, err := os.Open(filepath.Join(prefix, file)); err == nil {
			e.compare(area, prefix, list)
			_ = list.Close()
		}
	}
}

// compare compares the files below a prefix with their list.
func (e *examination) compare(area, prefix string, list io.Reader) {
	var wrong []string
	files := 0
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) == 4 && filepath.IsLocal(words[0]) {
			files++
			if why := differs(filepath.Join(prefix, words[0]), words[1], words[2], words[3]); why != "" {
				wrong = append(wrong, why)
			}
		}
	}
	if err := lines.Err(); err != nil {
		wrong = append(wrong, fmt.Sprintf("their list cannot be read after %d of them: %v", files, err))
	}
	if n := len(wrong); n > namedFiles {
		wrong = append(wrong[:namedFiles], fmt.Sprintf("and %d more", n-namedFiles))
	}
	if len(wrong) > 0 {
		e.found(Error, area, "install this release again, as a whole", "files below %s are not those that were installed: %s", prefix, strings.Join(wrong, "; "))
		return
	}
	e.ok(area, "%d files below %s are as they were installed", files, prefix)
}

// differs says in which way a file is not what its line in the inventory says.
func differs(path, mode, kind, value string) string {
	st, err := os.Lstat(path)
	if err != nil {
		return path + " is missing"
	}
	want, _ := strconv.ParseUint(mode, 8, 32)
	switch {
	case kind == "link":
		if to, err := os.Readlink(path); err != nil || to != value {
			return path + " does not lead to " + value
		}
	case kind == "dir" && !st.IsDir(), kind == "file" && !st.Mode().IsRegular():
		return path + " is no " + kind
	case kind == "file" && sumOf(path) != value:
		return path + " was changed"
	case kind != "link" && mode != "-" && uint64(st.Mode().Perm())&^want&0o022 != 0:
		return fmt.Sprintf("%s has the mode %#o, and not %s", path, st.Mode().Perm(), mode)
	}
	return ""
}

// sumOf returns the SHA-256 sum of a file, or an empty string.
func sumOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
