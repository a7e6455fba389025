package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/podmanifest"
)

// program is a program in a root, with the user that it is executed as.
type program struct {
	args     []string
	env      []string
	cwd      string
	uid, gid int
	groups   []int
}

// programOf returns the app's program. It looks up the names of the app's user and
// group.
func programOf(a *podmanifest.App, root string) (*program, error) {
	uid, gid, err := a.Identity(root)
	if err != nil {
		return nil, err
	}
	p := &program{args: a.Exec, env: a.Env(), cwd: a.Directory, uid: int(uid), gid: int(gid)}
	for _, g := range a.Groups {
		p.groups = append(p.groups, int(g))
	}
	return p, nil
}

// become executes the program in a root, and returns only if it fails. It calls about
// directly before the exec, when all other steps have succeeded.
func (p *program) become(root string, about func() error) error {
	proc.UseAllCPUs()
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("chroot to %s: %w", root, err)
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
	if err := os.Chdir(cmp.Or(p.cwd, "/")); err != nil {
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

// find returns the path of the program. Its errors have the texts that clients expect.
func (p *program) find() (string, error) {
	search := "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for _, kv := range p.env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	dirs := filepath.SplitList(search)
	for i, dir := range dirs {
		dirs[i] = filepath.Join("/", dir)
	}
	return proc.LookPath(p.args[0], dirs, runnable)
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
