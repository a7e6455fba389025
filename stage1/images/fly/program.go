package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// program is what is executed in a root, and as whom.
type program struct {
	args     []string
	env      []string
	cwd      string
	uid, gid int
	groups   []int
}

// program returns the app's own, once its names are known to be numbers.
func (a *app) program(root string) (*program, error) {
	p := &program{args: a.Exec, env: a.env(), cwd: a.Directory, groups: a.Groups}
	var err error
	if p.uid, err = identity(root, "etc/passwd", a.User); err != nil {
		return nil, fmt.Errorf("user: %w", err)
	}
	if p.gid, err = identity(root, "etc/group", a.Group); err != nil {
		return nil, fmt.Errorf("group: %w", err)
	}
	return p, nil
}

// identity returns a number, or that of a name in a file of the root. The owner of a
// path, which appc has as well, is not asked for by any client.
func identity(root, file, name string) (int, error) {
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		return n, nil
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	f, err := dir.Open(file)
	if err != nil {
		return 0, fmt.Errorf("%s is no number, and %w", name, err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if part := strings.Split(lines.Text(), ":"); len(part) > 2 && part[0] == name {
			return strconv.Atoi(part[2])
		}
	}
	return 0, fmt.Errorf("%s is neither a number nor in /%s", name, file)
}

// become executes the program in a root. What can be known to fail has failed before
// about is called; it returns only with an error.
func (p *program) become(root string, about func() error) error {
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("chroot to %s: %w", root, err)
	}
	cwd := p.cwd
	if cwd == "" {
		cwd = "/"
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := syscall.Setgroups(p.groups); err != nil {
		return fmt.Errorf("set groups %v: %w", p.groups, err)
	}
	if err := syscall.Setgid(p.gid); err != nil {
		return fmt.Errorf("set group %d: %w", p.gid, err)
	}
	if err := syscall.Setuid(p.uid); err != nil {
		return fmt.Errorf("set user %d: %w", p.uid, err)
	}
	if err := os.Chdir(cwd); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	path, err := p.find()
	if err != nil {
		return err
	}
	if about != nil {
		if err := about(); err != nil {
			return err
		}
	}
	return fmt.Errorf("exec: %q: %w", p.args[0], unix.Exec(path, p.args, p.env))
}

// find returns the path of the program, in the words that clients look for.
func (p *program) find() (string, error) {
	name := p.args[0]
	if strings.Contains(name, "/") {
		if err := runnable(name); err != nil {
			return "", fmt.Errorf("exec: %q: %w", name, err)
		}
		return name, nil
	}
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, kv := range p.env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	var denied error
	for _, dir := range filepath.SplitList(search) {
		path := filepath.Join("/", dir, name)
		err := runnable(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = err
		}
	}
	if denied != nil {
		return "", fmt.Errorf("exec: %q: %w", name, denied)
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}

func runnable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return fmt.Errorf("%s: is a directory", path)
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "execute", Path: path, Err: err}
	}
	return nil
}
