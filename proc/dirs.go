package proc

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// MakeDirs makes directories below a directory, with those above them. It follows no link below dir,
// and does not make dir itself, because another process may have moved it meanwhile.
func MakeDirs(dir string, names ...string) error {
	root, err := OpenFD(dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	var made []string
	for _, name := range names {
		for end, c := range name + "/" {
			if above := name[:end]; c == '/' && !slices.Contains(made, above) {
				if err := makeDir(root, above); err != nil {
					return &os.PathError{Op: "mkdir", Path: filepath.Join(dir, above), Err: err}
				}
				made = append(made, above)
			}
		}
	}
	return nil
}

// makeDir makes a directory below root, if it does not exist.
func makeDir(root int, name string) error {
	parent := root
	if above, base := filepath.Split(name); above != "" {
		var err error
		if parent, err = openDir(root, above); err != nil {
			return err
		}
		defer unix.Close(parent)
		name = base
	}
	err := unix.Mkdirat(parent, name, 0o755)
	if err != unix.EEXIST {
		return err
	}
	existing, err := openDir(parent, name)
	if err == nil {
		unix.Close(existing)
	}
	return err
}

// openDir opens a directory below root, and follows no link.
func openDir(root int, name string) (int, error) {
	return unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
}
