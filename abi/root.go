package abi

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Prepare makes the directories that a mount of an app's root needs, and makes sure that its paths in earlier mounts
// lead out of none of them. A container may have written these mounts. They are in the directory dir, by their
// numbers.
func (m *Mount) Prepare(dir string) error {
	for _, d := range m.Dirs {
		err := inMount(dir, d.Path, func(mount, path string) error {
			parent, err := OpenBelow(mount, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
			if err != nil {
				return err
			}
			defer parent.Close()
			if err := unix.Mkdirat(int(parent.Fd()), filepath.Base(path), d.Mode); err != nil {
				return err
			}
			return unix.Fchmodat(int(parent.Fd()), filepath.Base(path), d.Mode, 0) // despite the umask
		})
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make the directory %s: %w", d.Path, err)
		}
	}
	for _, path := range append(m.OverlayDirs(), m.Source) {
		err := inMount(dir, path, func(mount, path string) error {
			f, err := OpenBelow(mount, path, unix.O_PATH)
			if err != nil {
				return err
			}
			return f.Close()
		})
		if err != nil {
			return fmt.Errorf("%s of mount %s of type %s: %w", path, m.Source, m.Type, err)
		}
	}
	return nil
}

// inMount calls f with the directory of an earlier mount and the path there, if a path is in one.
func inMount(dir, path string, f func(mount, path string) error) error {
	if !InMount(path) {
		return nil
	}
	number, path, _ := strings.Cut(path, "/")
	if slices.Contains(strings.Split(path, "/"), "..") { // behind a link it leads elsewhere than its text says
		return errors.New("a path in a mount has no \"..\"")
	}
	return f(filepath.Join(dir, number), filepath.Join(".", path))
}

// InMount reports whether a path of a mount is in an earlier one: it begins with the number of that.
func InMount(path string) bool {
	number, _, _ := strings.Cut(path, "/")
	n, err := strconv.Atoi(number)
	return err == nil && number == strconv.Itoa(n) && n >= 0
}

// OverlayDirs returns the directories that the options of an overlay name.
func (m *Mount) OverlayDirs() (all []string) {
	for _, o := range m.Options {
		switch name, paths, _ := strings.Cut(o, "="); name {
		case "lowerdir", "upperdir", "workdir":
			all = append(all, strings.Split(paths, ":")...)
		}
	}
	return all
}
