package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// place is a cgroup that a walk visits: a directory of a path, or an open one.
type place struct {
	at   int    // the directory that path is relative to, or AT_FDCWD
	path string // short, however deep the cgroup is
	name string // in the cgroup above
}

func at(f *os.File) place { return place{int(f.Fd()), ".", f.Name()} }

func atPath(dir string) place { return place{unix.AT_FDCWD, dir, filepath.Base(dir)} }

func (p place) read(file string) ([]byte, error) { return proc.ReadFileAt(p.at, p.path+"/"+file) }

// write writes to a file of the cgroup. It is no error if the cgroup was removed meanwhile.
func (p place) write(file, value string) error {
	if err := proc.WriteFileAt(p.at, p.path+"/"+file, value); !isGone(err) {
		return err
	}
	return nil
}

func (p place) stat() (st unix.Stat_t, err error) {
	return st, unix.Fstatat(p.at, p.path, &st, unix.AT_SYMLINK_NOFOLLOW)
}

func (p place) open(name string) (*os.File, error) {
	fd, err := proc.OpenAt(p.at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// walk calls enter for a cgroup and then for those below it, and leave after all that are below
// one, with its parent and its name in that. leave is not called for the uppermost cgroup.
//
// A container may nest cgroups deeper than PATH_MAX, and deeper than the limit of open files, so
// walk follows descriptors, of which it has two open, and comes back by "..": the kernel moves no
// cgroup below another one. It keeps the names of the cgroups that it still has to visit.
//
// A cgroup that is removed meanwhile is left out. If enter returns fs.SkipAll, the walk ends
// without an error.
func walk(dir string, enter func(place) error, leave func(parent *os.File, name string) error) error {
	err := descend(dir, enter, leave)
	if errors.Is(err, fs.SkipAll) {
		return nil
	}
	return err
}

// level is a cgroup on the way from the uppermost to the present one.
type level struct {
	name string
	rest []string // the cgroups below it that the walk has not visited
}

func descend(dir string, enter func(place) error, leave func(parent *os.File, name string) error) error {
	top := atPath(dir)
	below, err := visit(top, enter)
	if err != nil || !below {
		return err
	}
	here, err := top.open(dir)
	if err != nil {
		return unlessGone(err)
	}
	defer func() { _ = here.Close() }()
	rest, err := directories(here)
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	for way := []level{{dir, rest}}; ; {
		l := &way[len(way)-1]
		if len(l.rest) > 0 {
			name := l.rest[0]
			l.rest = l.rest[1:]
			sub, rest, err := step(here, name, enter)
			if err != nil {
				return fmt.Errorf("%d cgroups below %s: %w", len(way), dir, err)
			}
			if sub != nil {
				_ = here.Close()
				here, way = sub, append(way, level{name, rest})
			} else if err := left(here, name, leave); err != nil {
				return err
			}
			continue
		}
		if len(way) == 1 {
			return nil
		}
		above, err := at(here).open("..")
		if err != nil {
			return fmt.Errorf("leave a cgroup that is %d below %s: %w", len(way)-1, dir, err)
		}
		_ = here.Close()
		here = above
		if err := left(here, l.name, leave); err != nil {
			return err
		}
		way = way[:len(way)-1]
	}
}

func left(parent *os.File, name string, leave func(*os.File, string) error) error {
	if leave == nil {
		return nil
	}
	return leave(parent, name)
}

// step visits a cgroup below an open one. If there are cgroups below that, it returns the opened
// directory and their names.
func step(here *os.File, name string, enter func(place) error) (*os.File, []string, error) {
	sub, err := at(here).open(name)
	if err != nil {
		return nil, nil, unlessGone(err)
	}
	below, err := visit(at(sub), enter)
	var rest []string
	if err == nil && below {
		rest, err = directories(sub)
	}
	if err != nil || len(rest) == 0 {
		_ = sub.Close()
		return nil, nil, err
	}
	return sub, rest, nil
}

// visit calls enter for a cgroup, and reports whether there may be cgroups below it.
func visit(p place, enter func(place) error) (below bool, err error) {
	if enter != nil {
		if err := enter(p); err != nil {
			return false, unlessGone(err)
		}
	}
	st, err := p.stat()
	return err == nil && !childless(&st), unlessGone(err)
}

// directories returns the names of the directories in an open one.
func directories(f *os.File) (names []string, err error) {
	entries, err := f.ReadDir(-1)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, unlessGone(err)
}

// childless reports whether a directory has no directories in it: it has two links.
func childless(st *unix.Stat_t) bool { return st.Nlink == 2 }

// isGone reports whether the error means that the cgroup was removed, before or after the
// open.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

func unlessGone(err error) error {
	if isGone(err) {
		return nil
	}
	return err
}
