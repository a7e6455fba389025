package podmanifest

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Identity returns the numbers of the app's user and group in its root. The
// manifest names each in one of three ways: by its number, by its name in
// /etc/passwd or /etc/group of the root, or by the path of a file in the root,
// which means the user or group that owns the file.
func (a *App) Identity(root string) (uid, gid uint32, err error) {
	if uid, err = identity(root, "etc/passwd", a.User); err != nil {
		return 0, 0, fmt.Errorf("user: %w", err)
	}
	if gid, err = identity(root, "etc/group", a.Group); err != nil {
		return 0, 0, fmt.Errorf("group: %w", err)
	}
	return uid, gid, nil
}

// maxLine is the longest line that is read: a group has a name for each member.
const maxLine = 16 << 20

func identity(root, file, name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	dir, err := os.OpenRoot(root) // links cannot lead out of it
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	if filepath.IsAbs(name) {
		return owner(dir, name, file == "etc/group")
	}
	f, err := dir.Open(file)
	if err != nil {
		return 0, fmt.Errorf("%s is no number, and %w", name, err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if part := strings.Split(lines.Text(), ":"); len(part) > 2 && part[0] == name {
			n, err := strconv.ParseUint(part[2], 10, 32)
			return uint32(n), err
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("look up %s in /%s: %w", name, file, err)
	}
	return 0, fmt.Errorf("%s is neither a number nor in /%s", name, file)
}

func owner(root *os.Root, path string, group bool) (uint32, error) {
	info, err := root.Stat(strings.TrimLeft(path, "/"))
	if err != nil {
		return 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s has no owner", path)
	}
	if group {
		return st.Gid, nil
	}
	return st.Uid, nil
}
