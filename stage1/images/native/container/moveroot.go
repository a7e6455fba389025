package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
		func() error { return doing("enter the rootfs", unix.Fchdir(newRoot)) },
		func() error { return doing("move the rootfs to /", unix.Mount(".", "/", "", unix.MS_MOVE, "")) },
		func() error { return removeKernelMounts(newRoot) }, // now the rootfs is on none but the first mount
		func() error { return doing("enter the rootfs", unix.Fchdir(newRoot)) },
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
	t := &mountTree{byID: map[int]*hostMount{}, root: root, removed: map[int]bool{}}
	for _, m := range all {
		t.byID[m.id] = m
	}
	covers := map[int]*hostMount{}           // by the ids of the mounts whose roots they cover
	for _, m := range slices.Backward(all) { // in a copied namespace a mount follows the one that it is on
		if t.gone(m) {
			continue
		}
		remains := true
		if c := covers[m.id]; kernelMount(m) && (c == nil || t.gone(c)) && !t.on(m, root) {
			if remains, err = t.remove(m); err != nil {
				return fmt.Errorf("remove the host's %s at %s, which would stay below the rootfs: %w", m.fstype, m.point, err)
			}
		}
		if on := t.byID[m.parent]; remains && on != nil && on.point == m.point {
			covers[on.id] = m
		}
	}
	return nil
}

// mountTree is the tree of the mounts that can be reached from this process's root.
type mountTree struct {
	byID    map[int]*hostMount
	root    int // the id of the app's root
	removed map[int]bool
}

// kernelMount reports whether a mount is a complete procfs or sysfs. The kernel does not consider a
// mount of a part of one.
func kernelMount(m *hostMount) bool {
	return m.root == "/" && (m.fstype == "proc" || m.fstype == "sysfs")
}

// on reports whether a mount is the one with this id, or below it.
func (t *mountTree) on(m *hostMount, id int) bool {
	return t.above(m, func(above int) bool { return above == id })
}

// gone reports whether a mount is removed, or was below one that is.
func (t *mountTree) gone(m *hostMount) bool {
	return t.above(m, func(above int) bool { return t.removed[above] })
}

// above reports whether is holds for a mount or one that it is on.
func (t *mountTree) above(m *hostMount, is func(id int) bool) bool {
	for ; m != nil; m = t.byID[m.parent] {
		if is(m.id) {
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

// remove detaches a mount, after those that hide it. If the kernel refuses that, because a more privileged user
// namespace has made the mount, remove covers it and returns true. The working directory is then
// the mount's.
func (t *mountTree) remove(m *hostMount) (remains bool, err error) {
	if err := t.enter(m); err != nil {
		return true, err
	}
	if err := t.detach(m); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
		return err != nil, err
	}
	return true, doing("cover it", unix.Mount("tmpfs", ".", "tmpfs", unix.MS_RDONLY, "nr_blocks=1,nr_inodes=1"))
}

// detach detaches the mount whose root is the working directory, and all that is on it.
func (t *mountTree) detach(m *hostMount) error {
	err := unix.Unmount(".", unix.MNT_DETACH)
	if err == nil {
		t.removed[m.id] = true
	}
	return err
}

// enter makes the root of a mount the working directory, and detaches the mounts that hide it. The app's root
// is a mount of its own by then, and needs none of them.
func (t *mountTree) enter(m *hostMount) error {
	for {
		at, err := enterPlace(m.point)
		if at == m.id || err != nil {
			return err
		}
		over := t.byID[at]
		switch {
		case over == nil || t.on(m, at):
			return fmt.Errorf("%s does not exist any more", m.point)
		case t.on(t.byID[t.root], at):
			return fmt.Errorf("the mount at %s hides it, and the rootfs is on that", over.point)
		}
		if err := t.enter(over); err != nil {
			return err
		}
		if err := t.detach(over); err != nil {
			return fmt.Errorf("the %s at %s hides it; unmount that on the host, or use pivot_root: detach it: %w", over.fstype, over.point, err)
		}
	}
}

// enterPlace makes the mount at a path the working directory, and returns its id. If the path leads nowhere,
// enterPlace does so with the part of it that exists.
func enterPlace(path string) (id int, err error) {
	for ; ; path = filepath.Dir(path) {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
		})
		if path != "/" && slices.Contains([]error{unix.ENOENT, unix.ENOTDIR, unix.ELOOP}, err) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("open %s: %w", path, err)
		}
		defer unix.Close(fd)
		if id, err = mountID(fd); err != nil {
			return 0, fmt.Errorf("the mount of %s: %w", path, err)
		}
		return id, doing("enter "+path, unix.Fchdir(fd))
	}
}

// mountID returns the id of the mount of a file.
func mountID(fd int) (int, error) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return int(st.Mnt_id), err
}
