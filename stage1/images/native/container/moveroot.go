package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ReplaceRoot makes a detached tree the root of this process, in place of the mount at "/". If
// "/" is the initial filesystem, which no mount can replace, the tree covers it.
func ReplaceRoot(tree int) error {
	err := inOrder(
		func() error {
			return doing("set the propagation of /", unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""))
		},
		func() error {
			return doing("attach the new root", unix.MoveMount(tree, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH))
		},
	)
	if err != nil {
		return err
	}
	if err = pivot(tree); !errors.Is(err, unix.EINVAL) {
		return err
	}
	return inOrder(func() error { return removeKernelMounts(tree) }, func() error { return changeRoot(tree) })
}

// moveRoot enters the root on a host that runs from an initramfs, where pivot_root(2)
// fails.
func moveRoot(newRoot int) error {
	return inOrder(
		func() error { return removeKernelMounts(newRoot) },
		func() error { return doing("enter the rootfs", unix.Fchdir(newRoot)) },
		func() error { return doing("move the rootfs to /", unix.Mount(".", "/", "", unix.MS_MOVE, "")) },
		func() error { return doing("chroot", unix.Chroot(".")) },
		func() error { return doing("enter the new root", unix.Chdir("/")) },
	)
}

// removeKernelMounts removes each complete procfs and sysfs that is not below the new root. A
// chroot does not hide them: the kernel lets a process of the app mount a new procfs or sysfs
// in a user namespace, without the app's masks, if there is one in the mount namespace that
// nothing covers. The host's mounts must not be shared with the host.
func removeKernelMounts(newRoot int) error {
	root, err := mountID(newRoot)
	if err != nil {
		return fmt.Errorf("look at the rootfs: %w", err)
	}
	all, err := hostMounts()
	if err != nil {
		return fmt.Errorf("list the mounts of the host: %w", err)
	}
	byID := map[int]*hostMount{}
	for _, m := range all {
		byID[m.id] = m
	}
	covered := map[int]bool{}                // ids of mounts whose root another one covers
	for _, m := range slices.Backward(all) { // in a copied namespace a mount follows the one that it is on
		remains := true
		if kernelMount(m) && !covered[m.id] && !below(byID, m, root) {
			if remains, err = removeMount(m); err != nil {
				return fmt.Errorf("remove the host's %s at %s, which would stay below the rootfs: %w", m.fstype, m.point, err)
			}
		}
		if on := byID[m.parent]; remains && on != nil && on.point == m.point {
			covered[on.id] = true
		}
	}
	return nil
}

// kernelMount reports whether a mount is a complete procfs or sysfs. The kernel does not consider a
// mount of a part of one.
func kernelMount(m *hostMount) bool {
	return m.root == "/" && (m.fstype == "proc" || m.fstype == "sysfs")
}

// below reports whether a mount is the one with the id root, or below it.
func below(byID map[int]*hostMount, m *hostMount, root int) bool {
	for ; m != nil; m = byID[m.parent] {
		if m.id == root {
			return true
		}
		if m.parent == m.id {
			break
		}
	}
	return false
}

// hostMounts lists the mounts that can be reached from this process's root.
func hostMounts() ([]*hostMount, error) {
	proc, err := openProcfs()
	if err != nil {
		return nil, err
	}
	defer proc.close()
	fd, err := proc.open("thread-self/mountinfo", unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "mountinfo")
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, err
	}
	return parseMounts(string(text))
}

// hostMount is a line of mountinfo.
type hostMount struct {
	id, parent int
	root       string // the directory of the filesystem that is mounted
	point      string // where
	fstype     string
}

// parseMounts reads a text of the form of mountinfo (proc_pid_mountinfo(5)).
func parseMounts(text string) (all []*hostMount, err error) {
	escaped := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		dash := slices.Index(words, "-")
		if dash < 6 || dash+1 == len(words) {
			return nil, fmt.Errorf("not a mount: %q", line)
		}
		m := &hostMount{root: words[3], point: escaped.Replace(words[4]), fstype: words[dash+1]}
		if m.id, err = strconv.Atoi(words[0]); err != nil {
			return nil, err
		}
		if m.parent, err = strconv.Atoi(words[1]); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// removeMount detaches a mount. If the kernel refuses that, because a more privileged user namespace
// has made the mount, removeMount covers it and returns true. The working directory is then
// the mount's.
func removeMount(m *hostMount) (remains bool, err error) {
	if err := enterMount(m); err != nil {
		return true, err
	}
	err = unix.Unmount(".", unix.MNT_DETACH)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return err != nil, err
	}
	return true, doing("cover it", unix.Mount("tmpfs", ".", "tmpfs", unix.MS_RDONLY, "nr_blocks=1,nr_inodes=1"))
}

// enterMount makes the root of a mount the working directory. It fails if another mount hides it.
func enterMount(m *hostMount) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, m.point, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
	if err != nil {
		return fmt.Errorf("open %s: %w", m.point, err)
	}
	defer unix.Close(fd)
	id, err := mountID(fd)
	if err != nil {
		return err
	}
	if id != m.id {
		return fmt.Errorf("another mount hides %s", m.point)
	}
	return unix.Fchdir(fd)
}

// mountID returns the id of the mount of a file.
func mountID(fd int) (int, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return int(st.Mnt_id), err
}
