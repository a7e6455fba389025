package proc

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MountCopier makes detached copies of mounts that can be attached in any mount namespace. Its zero value is ready.
//
// A copy with a file of a mount namespace, as `unshare --mount=FILE` and snapd mount them, cannot: move_mount(2) returns
// ELOOP in each mount namespace that is not older than the one of the file (mnt_ns_loop in fs/namespace.c). The
// kernel leaves such mounts out of each new mount namespace, and so does a MountCopier: in the copy is the file that they
// cover. runc, whose containers copy the host's namespace, shows the same tree.
type MountCopier struct {
	looked, pinned bool
}

// Copy copies the mount at path, or the part of it below path, and if recursive also the mounts below. The caller's thread
// has the mount namespace of this process, or one without files of mount namespaces.
func (c *MountCopier) Copy(path string, recursive bool) (*os.File, error) {
	tree, err := copyMounts(path, recursive)
	if err != nil {
		return nil, err
	}
	pinned, err := c.pins(tree, recursive)
	if err == nil && !pinned {
		return tree, nil
	}
	tree.Close()
	if err != nil {
		return nil, err
	}
	err = OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("leave out the files of mount namespaces: unshare: %w", err)
		}
		tree, err = copyMounts(path, recursive)
		return err
	})
	return tree, err
}

// copyMounts makes a copy of all mounts.
func copyMounts(path string, recursive bool) (*os.File, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// pins reports whether a copy may have files of mount namespaces. It reads the list of mounts only once, and
// only for a copy that may have mounts below it.
func (c *MountCopier) pins(tree *os.File, recursive bool) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(tree.Fd()), &fs); err != nil {
		return false, fmt.Errorf("look at %s: %w", tree.Name(), err)
	}
	if fs.Type == unix.NSFS_MAGIC {
		return true, nil
	}
	if !recursive || c.looked {
		return recursive && c.pinned, nil
	}
	info, err := tree.Stat()
	if err != nil || !info.IsDir() {
		return false, err
	}
	mounts, err := os.Open("/proc/thread-self/mountinfo") // the caller's thread may be in another mount namespace
	if err != nil {
		return false, err
	}
	defer mounts.Close()
	c.pinned, err = hasMountNamespace(mounts)
	c.looked = err == nil
	return c.pinned, err
}

// hasMountNamespace reports whether a text of the form of mountinfo (proc_pid_mountinfo(5)) has the file of a mount namespace.
func hasMountNamespace(mountinfo io.Reader) (bool, error) {
	for r := bufio.NewReader(mountinfo); ; {
		line, err := r.ReadSlice('\n')
		if err == nil || err == io.EOF || err == bufio.ErrBufferFull { // the root is in the first part of a long line
			if fields := bytes.SplitN(line, []byte(" "), 5); len(fields) == 5 && bytes.HasPrefix(fields[3], []byte("mnt:[")) {
				return true, nil
			}
		}
		for err == bufio.ErrBufferFull {
			_, err = r.ReadSlice('\n')
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read the list of mounts: %w", err)
		}
	}
}
