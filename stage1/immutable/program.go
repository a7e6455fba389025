package immutable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// CheckProgram returns an error, in the words that clients expect, if the program of an app
// is missing in its root. An image of rkt would report this only at the start of the app,
// and in other words.
func CheckProgram(root string, p *specs.Process) error {
	_, err := FindProgram(root, p)
	return err
}

// FindProgram returns the path of a process's program inside a root. Links cannot lead out
// of the root.
func FindProgram(root string, p *specs.Process) (string, error) {
	name := p.Args[0]
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join("/", p.Cwd, name)
		}
		if err := executable(root, name); err != nil {
			return "", fmt.Errorf("exec: %q: %w", p.Args[0], err)
		}
		return name, nil
	}
	search := ""
	for _, kv := range p.Env {
		if value, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = value
		}
	}
	if search == "" {
		search = stage1.DefaultPath
	}
	dirs := filepath.SplitList(search)
	for i, dir := range dirs {
		dirs[i] = filepath.Join("/", dir)
	}
	return proc.LookPath(name, dirs, func(path string) error { return executable(root, path) })
}

// executable returns the reason for which a file cannot be executed, or nil.
func executable(root, path string) error {
	full, err := securejoin.SecureJoin(root, path)
	if err != nil {
		return err
	}
	st, err := os.Stat(full)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("stat %s: no such file or directory: %w", path, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("stat %s: %w", path, err)
	case st.IsDir():
		return fmt.Errorf("%s: is a directory", path)
	case st.Mode()&0o111 == 0:
		return fmt.Errorf("%s: %w", path, fs.ErrPermission)
	}
	return nil
}
