package container

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"
)

// root is the app's root before it becomes "/". Paths are resolved in it as if it were
// "/", so that no link leads out of it.
type root struct {
	fd   int
	path string
}

// set makes an open directory the root.
func (r *root) set(fd int) error {
	r.fd = fd
	p, err := readlink(procPath(fd))
	r.path = p
	return err
}

func readlink(p string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlink(p, buf)
	return string(buf[:max(n, 0)]), err
}

// procPath returns a path to an open file, for system calls that accept no descriptor.
func procPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// open resolves p inside the root and opens the file with O_PATH.
func (r root) open(p string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	// openat2 returns EAGAIN if a rename or mount anywhere on the host makes the
	// resolution of ".." uncertain.
	const attempts = 128
	for range attempts {
		fd, err := unix.Openat2(r.fd, p, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
	return -1, unix.EAGAIN
}

// target opens a mount point as open does. It makes missing directories and, at the end of
// the path, a directory or an empty file.
func (r root) target(p string, flags uint64, file bool) (fd int, made bool, err error) {
	fd, err = r.open(p, flags)
	if !errors.Is(err, unix.ENOENT) {
		return fd, false, err
	}
	clean, err := r.follow(p)
	if err != nil {
		return -1, false, err
	}
	parent, err := r.directory(path.Dir(clean))
	if err != nil {
		return -1, false, err
	}
	defer unix.Close(parent)
	fd, err = ensure(parent, path.Base(clean), file)
	return fd, true, err
}

// follow replaces every symbolic link in p by its target, even if the target does not
// exist. Images have links that dangle until the app runs, such as /etc/resolv.conf, and
// in that case the target is the file to make.
func (r root) follow(p string) (string, error) {
	prefix := procPath(r.fd)
	if r.path == "/" { // then /proc is the app's, too
		prefix = r.path
	}
	joined, err := securejoin.SecureJoin(prefix, p)
	if err != nil {
		return "", err
	}
	return path.Clean("/" + strings.TrimPrefix(joined, prefix)), nil
}

// directory opens a path without links, and makes missing directories.
func (r root) directory(clean string) (int, error) {
	fd, err := unix.Openat(r.fd, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for _, name := range strings.FieldsFunc(clean, func(c rune) bool { return c == '/' }) {
		next, err := ensure(fd, name, false)
		unix.Close(fd)
		if err != nil {
			return -1, err
		}
		fd = next
	}
	return fd, nil
}

// ensure opens name in a directory, and makes it if it is missing. It follows no link.
func ensure(dir int, name string, file bool) (int, error) {
	const find = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	kind := 0
	if !file {
		kind = unix.O_DIRECTORY
	}
	fd, err := unix.Openat(dir, name, find|kind, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if file { // not open(2), which would block on a fifo that another container puts there
		err = unix.Mknodat(dir, name, unix.S_IFREG|0o644, 0)
	} else {
		err = unix.Mkdirat(dir, name, 0o755)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) { // another app with the same root may have made it meanwhile
		return -1, fmt.Errorf("make mount point %s: %w", name, err)
	}
	return unix.Openat(dir, name, find|kind, 0)
}

// resolved returns the path of an open file in the root.
func (r root) resolved(fd int) (string, error) {
	p, err := readlink(procPath(fd))
	return path.Clean("/" + strings.TrimPrefix(p, r.path)), err
}

// is reports whether an open file is the root.
func (r root) is(fd int) (bool, error) {
	file, own, err := r.compared(fd)
	return err == nil && file.Mnt_id == own.Mnt_id && file.Ino == own.Ino, err
}

// sameMount reports whether an open file is on the root's mount.
func (r root) sameMount(fd int) (bool, error) {
	file, own, err := r.compared(fd)
	return err == nil && file.Mnt_id == own.Mnt_id, err
}

// compared returns the attributes of an open file and of the root.
func (r root) compared(fd int) (file, own unix.Statx_t, err error) {
	const mask = unix.STATX_MNT_ID | unix.STATX_INO
	err = inOrder(
		func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, mask, &file) },
		func() error { return unix.Statx(r.fd, "", unix.AT_EMPTY_PATH, mask, &own) },
	)
	return file, own, err
}
