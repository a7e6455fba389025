package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// MountCopier makes detached copies of mounts that can be attached in any mount namespace, with the mounts that a process
// in a new mount namespace sees, as the processes of runc's containers. Its zero value is ready.
//
// A copy with a file of a mount namespace, as `unshare --mount=FILE` and snapd mount them, cannot be attached: move_mount(2)
// returns ELOOP in each mount namespace that is not older than the one of the file (mnt_ns_loop in fs/namespace.c). The
// kernel leaves such mounts out of each new mount namespace, and so does a MountCopier: in the copy is the file that they
// cover. Unbindable mounts are not copied, but some kernels (such as 6.18) make them bindable in a new mount namespace.
type MountCopier struct {
	looked, special bool
}

// Copy copies the mount at path, or the part of it below path, and if recursive also the mounts below. On a thread that has
// another mount namespace than the process, it takes that one's mounts as they are.
func (c *MountCopier) Copy(path string, recursive bool) (*os.File, error) {
	tree, err := copyMounts(path, recursive)
	special := errors.Is(err, unix.EINVAL) // it may be unbindable
	if err == nil {
		if special, err = c.isSpecial(tree, recursive); err == nil && !special {
			return tree, nil
		}
		if err == nil && elsewhere() {
			return tree, nil
		}
		tree.Close()
	}
	if !special || elsewhere() {
		return nil, err
	}
	err = OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("make a mount namespace to copy from: %w", err)
		}
		tree, err = copyMounts(path, recursive)
		return err
	})
	return tree, err
}

// elsewhere reports whether this thread may have another mount namespace than the process.
func elsewhere() bool {
	thread, err1 := os.Readlink("/proc/thread-self/ns/mnt")
	process, err2 := os.Readlink("/proc/self/ns/mnt")
	return err1 != nil || err2 != nil || thread != process
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

// isSpecial reports whether a copy may have files of mount namespaces, or lack unbindable mounts. It reads the list of
// mounts only once, and only for a copy that may have mounts below it.
func (c *MountCopier) isSpecial(tree *os.File, recursive bool) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(tree.Fd()), &fs); err != nil {
		return false, fmt.Errorf("look at %s: %w", tree.Name(), err)
	}
	if fs.Type == unix.NSFS_MAGIC {
		return true, nil
	}
	if !recursive || c.looked {
		return recursive && c.special, nil
	}
	info, err := tree.Stat()
	if err != nil || !info.IsDir() {
		return false, err
	}
	mounts, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return false, err
	}
	defer mounts.Close()
	c.special, err = hasSpecial(mounts)
	c.looked = err == nil
	return c.special, err
}

// hasSpecial reports whether a text of the form of mountinfo (proc_pid_mountinfo(5)) has the file of a mount namespace or an
// unbindable mount.
func hasSpecial(mountinfo io.Reader) (bool, error) {
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20) // an overlay's line has the path of each layer
	for lines.Scan() {
		line, _, _ := bytes.Cut(lines.Bytes(), []byte(" - "))
		fields := bytes.Fields(line)
		if len(fields) < 6 {
			continue
		}
		unbindable := slices.ContainsFunc(fields[6:], func(option []byte) bool { return string(option) == "unbindable" })
		if unbindable || bytes.HasPrefix(fields[3], []byte("mnt:[")) {
			return true, nil
		}
	}
	if err := lines.Err(); err != nil {
		return false, fmt.Errorf("read the list of mounts: %w", err)
	}
	return false, nil
}
