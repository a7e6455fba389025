package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// handle is an open directory, for what is done to every pod: os.Root makes several system
// calls for each part of a path, and five more for each file that it opens. A handle follows no
// link below its directory either. Its methods may be called concurrently.
type handle struct{ dir *os.File }

func openHandle(path string) (handle, error) {
	dir, err := proc.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	return handle{dir}, err
}

// close closes the directory, if it was opened.
func (h handle) close() { _ = h.dir.Close() }

// in calls f with a descriptor of a directory below h. The name "." stands for h itself.
func (h handle) in(name string, f func(fd int) error) error {
	conn, err := h.dir.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = conn.Control(func(fd uintptr) {
		if name == "." {
			inner = f(int(fd))
			return
		}
		sub, err := abi.OpenAt(int(fd), name, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			inner = &os.PathError{Op: "open", Path: filepath.Join(h.dir.Name(), name), Err: err}
			return
		}
		defer unix.Close(sub)
		inner = f(sub)
	})
	return errors.Join(err, inner)
}

// read reads a file.
func (h handle) read(name string) (text []byte, err error) {
	err = h.in(".", func(dir int) error {
		fd, err := abi.OpenAt(dir, name, unix.O_RDONLY)
		if err != nil {
			return &os.PathError{Op: "open", Path: filepath.Join(h.dir.Name(), name), Err: err}
		}
		defer unix.Close(fd)
		text, err = proc.ReadAll(fd)
		return err
	})
	return text, err
}

// link makes a symbolic link, which has a text and leads nowhere.
func (h handle) link(name, text string) error {
	err := h.in(".", func(dir int) error { return unix.Symlinkat(text, dir, name) })
	if err != nil {
		return fmt.Errorf("make the link %s: %w", filepath.Join(h.dir.Name(), name), err)
	}
	return nil
}

// readLink returns the text of a link.
func (h handle) readLink(name string) (string, error) {
	var text [64]byte
	var n int
	err := h.in(".", func(dir int) (err error) {
		n, err = unix.Readlinkat(dir, name, text[:])
		return err
	})
	return string(text[:max(n, 0)]), err
}

// record is readRecord.
func (h handle) record(name string, v any) error {
	b, err := h.read(name)
	if err != nil {
		return err
	}
	return decodeRecord(h.dir.Name(), name, b, v)
}

// write writes a record that this process has made, or makes now, so that it has no fields of
// another release.
func (h handle) write(name string, v any) error { return h.put(name, v, replaceAt) }

// create is write for a record that most probably does not exist yet.
func (h handle) create(name string, v any) error { return h.put(name, v, createAt) }

// createText is create for a record whose text is known.
func (h handle) createText(name, text string) error {
	return h.putText(name, []byte(text), createAt)
}

func (h handle) put(name string, v any, how func(dir int, name string, b []byte) error) error {
	b, err := plainjson.Encode(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(h.dir.Name(), name), err)
	}
	return h.putText(name, b, how)
}

func (h handle) putText(name string, b []byte, how func(dir int, name string, b []byte) error) error {
	err := h.in(filepath.Dir(name), func(fd int) error { return how(fd, filepath.Base(name), b) })
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(h.dir.Name(), name), err)
	}
	return nil
}

// createAt is replaceAt with fewer system calls for a file that does not exist yet.
func createAt(dir int, name string, b []byte) error {
	err := fillAt(dir, spareOf(name), unix.O_EXCL, b)
	if err == unix.EEXIST {
		return replaceAt(dir, name, b)
	}
	if err != nil {
		return err
	}
	return unix.Renameat(dir, spareOf(name), dir, name)
}

// replaceAt is replaceFile.
func replaceAt(dir int, name string, b []byte) error {
	spare := spareOf(name)
	if err := fillAt(dir, spare, 0, b); err != nil {
		return err
	}
	if err := unix.Renameat2(dir, spare, dir, name, unix.RENAME_EXCHANGE); err == nil {
		return nil
	}
	return unix.Renameat(dir, spare, dir, name)
}

// fillAt is overwrite, or with O_EXCL makes the file.
func fillAt(dir int, name string, flag int, b []byte) error {
	fd, err := again(func() (int, error) {
		return unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|flag, 0o640)
	})
	if err != nil {
		return err
	}
	for rest := b; len(rest) > 0 && err == nil; {
		var n int
		n, err = again(func() (int, error) { return unix.Write(fd, rest) })
		rest = rest[max(n, 0):]
	}
	if err == nil && flag&unix.O_EXCL == 0 {
		err = unix.Ftruncate(fd, int64(len(b)))
	}
	return errors.Join(err, unix.Close(fd))
}

// remove removes files and directories, with everything in them. It is no error if one does not
// exist. It does not unmount anything.
func (h handle) remove(dir string, names ...string) error {
	err := h.in(dir, func(fd int) error {
		for _, name := range names {
			if err := removeAt(fd, name); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("remove from %s: %w", filepath.Join(h.dir.Name(), dir), err)
}

// empty removes everything in the directory, except for some files.
func (h handle) empty(keep ...string) error {
	err := h.in(".", func(fd int) error { return emptyAt(fd, ".", ownLevels, keep...) })
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return fmt.Errorf("empty %s: %w", h.dir.Name(), err)
}

// ownLevels is more than the depth of a pod's directory without the tree of a stage1, which a container
// may have made as deep as it likes. That is removed with more system calls, and few open files.
const ownLevels = 8

// removeAt removes a file or a directory.
func removeAt(dir int, name string) error { return removeLevels(dir, name, ownLevels) }

func removeLevels(dir int, name string, levels int) error {
	_, err := again(func() (int, error) { return 0, unix.Unlinkat(dir, name, 0) })
	if err != unix.EISDIR {
		return ignoreGone(err)
	}
	if levels == 0 {
		return proc.RemoveAllAt(dir, name)
	}
	// A stage1 may make files in its directories meanwhile.
	const tries = 5
	for range tries {
		if err = emptyAt(dir, name, levels-1); err != nil {
			return ignoreGone(err)
		}
		_, err = again(func() (int, error) { return 0, unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) })
		if err != unix.ENOTEMPTY {
			return ignoreGone(err)
		}
	}
	return err
}

func emptyAt(dir int, name string, levels int, keep ...string) error {
	fd, err := again(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	names, err := entriesOf(fd)
	for _, name := range names {
		if err != nil {
			return err
		}
		if !slices.Contains(keep, name) {
			err = removeLevels(fd, name, levels)
		}
	}
	return err
}

func entriesOf(fd int) (names []string, err error) {
	buf := make([]byte, 4096)
	for {
		n, err := again(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil || n == 0 {
			return names, err
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

func ignoreGone(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// again repeats a system call that a signal interrupts.
func again(call func() (int, error)) (n int, err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		n, err = call()
	}
	return n, err
}
