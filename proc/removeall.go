package proc

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// RemoveAll is os.RemoveAll for a tree in which a container may have made directories: os.RemoveAll
// has as many files open as the tree is deep, and fails if these are too many. RemoveAll has two. It
// ends with the first file that cannot be removed. No process may move directories of the tree
// meanwhile.
func RemoveAll(path string) error { return RemoveAllAt(unix.AT_FDCWD, path) }

// RemoveAllAt is RemoveAll for a path that is relative to an open directory.
func RemoveAllAt(dir int, path string) error {
	full, err := remove(dir, path)
	if err != nil || !full {
		return err
	}
	here, err := openTree(dir, path)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = here.Close() }()
	var way []branch // from path to here
	for {
		sub, err := removeFiles(here)
		if err != nil {
			return fmt.Errorf("%d directories below %s: %w", len(way), path, err)
		}
		if sub == "" && len(way) == 0 {
			full, err := remove(dir, path)
			if err != nil || !full {
				return err
			}
			continue // a process has made a file meanwhile
		}
		var next *os.File
		if sub != "" {
			var b branch
			if b, err = branchOf(here, sub); err == nil {
				next, err = openTree(int(here.Fd()), sub)
			}
			if errors.Is(err, unix.ENOENT) {
				continue // another process has removed it
			}
			way = append(way, b)
		} else {
			next, err = way[len(way)-1].back(here)
			way = way[:len(way)-1]
		}
		if err != nil {
			return fmt.Errorf("%d directories below %s: %w", len(way), path, err)
		}
		_ = here.Close()
		here = next
	}
}

// branch is a directory, by its number, and the name of the one in it that is being emptied.
type branch struct {
	dev, ino uint64
	name     string
}

func branchOf(f *os.File, name string) (branch, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return branch{st.Dev, st.Ino, name}, err
}

// back opens the directory of the branch from the one in it, and removes that one.
func (b branch) back(from *os.File) (*os.File, error) {
	f, err := openTree(int(from.Fd()), "..")
	if err != nil {
		return nil, err
	}
	now, err := branchOf(f, b.name)
	if err == nil && now != b {
		err = errors.New("a directory was moved during its removal")
	}
	if err == nil {
		_, err = remove(int(f.Fd()), b.name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeFiles removes what is in a directory, up to the first directory that is not empty, and
// returns the name of that.
func removeFiles(dir *os.File) (full string, err error) {
	const some = 1024
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return "", err
		}
		names, err := dir.Readdirnames(some)
		if err == io.EOF {
			return "", nil
		}
		if err != nil {
			return "", err
		}
		for _, name := range names {
			if full, err := remove(int(dir.Fd()), name); err != nil {
				return "", err
			} else if full {
				return name, nil
			}
		}
	}
}

// remove removes a file or an empty directory. full reports whether it is a directory that is not
// empty. It is no error if there is no such file.
func remove(dir int, name string) (full bool, err error) {
	for _, flag := range []int{0, unix.AT_REMOVEDIR} {
		_, e := again(func() (int, error) { return 0, unix.Unlinkat(dir, name, flag) })
		switch {
		case e == nil || e == unix.ENOENT:
			return false, nil
		case flag == unix.AT_REMOVEDIR && (e == unix.ENOTEMPTY || e == unix.EEXIST):
			return true, nil
		case e != unix.ENOTDIR:
			err = e
		}
	}
	return false, &os.PathError{Op: "remove", Path: name, Err: err}
}

func openTree(dir int, name string) (*os.File, error) {
	fd, err := OpenAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
