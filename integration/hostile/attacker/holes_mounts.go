package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// at is a directory of the image on which probes mount, and other another one.
const at, other = "/p", "/vol"

// machineFiles can change the whole machine, below a procfs.
var machineFiles = []string{"sys/kernel/core_pattern", "sys/kernel/modprobe", "sys/vm/drop_caches", "sysrq-trigger"}

// hiddenFiles are files that containerd's default spec masks, below a procfs.
var hiddenFiles = []string{"kcore", "keys", "timer_list"}

// probeKernelFiles mounts a procfs and a sysfs of its own, whose files nothing covers.
func (t target) probeKernelFiles(say func(string, error)) {
	err := unix.Mount("proc", at, "proc", 0, "")
	say("a fresh procfs", err)
	if err == nil {
		probeProcfs("a fresh procfs", at, say)
		_ = unix.Unmount(at, unix.MNT_DETACH)
	}
	err = unix.Mount("sysfs", at, "sysfs", 0, "")
	say("a fresh sysfs", err)
	if err != nil {
		return
	}
	say("a fresh sysfs: a file opens for writing", writableBelow(at))
	_ = unix.Unmount(at, unix.MNT_DETACH)
}

func probeProcfs(what, dir string, say func(string, error)) {
	for _, file := range machineFiles {
		say(what+": "+file+" opens for writing", opens(filepath.Join(dir, file)))
	}
	for _, file := range hiddenFiles {
		say(what+": "+file+" is not masked", reads(filepath.Join(dir, file)))
	}
}

// writableBelow reports whether some files of a sysfs that belong to the machine open for writing.
func writableBelow(dir string) error {
	var errs []error
	for _, pattern := range []string{"kernel/mm/*/*", "power/*", "kernel/*", "module/*/parameters/*", "module/*/uevent"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, file := range files {
			if st, err := os.Lstat(file); err != nil || !st.Mode().IsRegular() || st.Mode()&0o200 == 0 {
				continue
			}
			err := opens(file)
			if errs = append(errs, err); err == nil {
				return nil
			}
		}
	}
	return openOnce(append(errs, unix.EROFS))
}

// probeTypes mounts every type of file system that the kernel has, but for those that other probes mount.
func (t target) probeTypes(say func(string, error)) {
	f, err := os.Open("/proc/filesystems")
	if err != nil {
		return
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		kind := fields[len(fields)-1]
		if slices.Contains([]string{"proc", "sysfs", "cgroup", "cgroup2", "cpuset"}, kind) {
			continue
		}
		options := ""
		if kind == "overlay" {
			options = "lowerdir=/bin:/etc"
		}
		err := unix.Mount("none", at, kind, 0, options)
		if err == nil {
			_ = unix.Unmount(at, unix.MNT_DETACH)
		}
		say("a file system of the type "+kind, err)
	}
}

// probeMasks uncovers what is masked or read-only.
func (t target) probeMasks(say func(string, error)) {
	for _, file := range []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/acpi", "/sys/firmware"} {
		if _, err := os.Lstat(file); err != nil {
			continue
		}
		say("move the mask of "+file, unix.Mount(file, other, "", unix.MS_MOVE, ""))
		say("unmount the mask of "+file, unix.Unmount(file, unix.MNT_DETACH))
	}
	for name, flags := range map[string]uintptr{"alone": unix.MS_BIND, "with all below": unix.MS_BIND | unix.MS_REC} {
		for _, dir := range []string{"/proc", "/sys"} {
			err := unix.Mount(dir, at, "", flags, "")
			if err == nil {
				if err = t.uncovered(dir); err == nil && dir == "/proc" {
					probeProcfs("bind "+dir+" "+name, at, say)
				}
				_ = unix.Unmount(at, unix.MNT_DETACH)
			}
			say("bind "+dir+" "+name, err)
		}
	}
	if fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC); err != nil {
		say("clone /proc alone", err)
	} else {
		say("clone /proc alone", opens(fmt.Sprintf("/proc/self/fd/%d/sys/kernel/core_pattern", fd)))
		unix.Close(fd)
	}
	for _, m := range [][2]string{{"/proc/sys", "/proc/sys/kernel/core_pattern"}, {"/proc/sysrq-trigger", "/proc/sysrq-trigger"}} {
		err := unix.Mount("", m[0], "", unix.MS_REMOUNT|unix.MS_BIND, "")
		if err == nil {
			err = opens(m[1])
		}
		say("make "+m[0]+" writable", err)
		err = unix.MountSetattr(unix.AT_FDCWD, m[0], 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		if err == nil {
			err = opens(m[1])
		}
		say("make "+m[0]+" writable by mount_setattr", err)
	}
	err := unix.Mount("", "/sys", "", unix.MS_REMOUNT|unix.MS_BIND, "")
	if err == nil {
		err = writableBelow("/sys")
	}
	say("make /sys writable", err)
}

// uncovered reports whether a copy of /proc or /sys at at shows what is masked in the original.
func (t target) uncovered(dir string) error {
	if dir == "/proc" {
		return opens(filepath.Join(at, "sys/kernel/core_pattern"))
	}
	return writableBelow(at)
}

// probeRoot takes the root away, and joins its own mount namespace again, whose root may be another
// directory than this process's.
func (t target) probeRoot(say func(string, error)) {
	// A thread that shares its root with others may not join a mount namespace.
	runtime.LockOSThread()
	must(unix.Unshare(unix.CLONE_FS))
	ns, err := unix.Open("/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		say("the root of the own mount namespace", err)
		return
	}
	var before, after unix.Stat_t
	_ = unix.Stat("/", &before)
	join := func(name string) {
		err := unix.Setns(ns, unix.CLONE_NEWNS)
		if err == nil {
			_ = unix.Stat("/", &after)
			if err = errCovered; before.Dev != after.Dev || before.Ino != after.Ino {
				err = nil
			}
			say("the host's files in the root of the own mount namespace"+name, t.anySecret())
		}
		say("another root in the own mount namespace"+name, err)
	}
	join("")
	err = unix.Unmount("/", unix.MNT_DETACH)
	say("unmount the root", err)
	if err == nil {
		join(", after the root was unmounted")
	}
}

// probeMountIDs asks for mounts above the root, by their ids.
func (t target) probeMountIDs(say func(string, error)) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, "/", 0, unix.STATX_MNT_ID_UNIQUE, &st); err != nil || st.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return // before Linux 6.8
	}
	root, err := statMount(st.Mnt_id)
	say("statmount of the root", err)
	if err != nil || root.parent == st.Mnt_id {
		return
	}
	above, err := statMount(root.parent)
	say("statmount above the root", err)
	if err == nil && above.kind == "rootfs" { // the kernel's, which is empty
		err = errCovered
	}
	say("a mount of the host's is above the root", err)
	say("listmount above the root", listMount(root.parent))
}

// mounted is what probes need of the kernel's struct statmount.
type mounted struct {
	parent uint64
	kind   string
}

const (
	sysStatmount, sysListmount = 457, 458
	// STATMOUNT_MNT_BASIC, STATMOUNT_FS_TYPE
	statmountMask = 0x2 | 0x20
)

// mountID is the kernel's struct mnt_id_req, in its first version.
type mountID struct {
	size, spare uint32
	id, param   uint64
}

func statMount(id uint64) (m mounted, err error) {
	request := mountID{size: 24, id: id, param: statmountMask}
	b := make([]byte, 4096)
	if _, _, errno := unix.Syscall6(sysStatmount, uintptr(unsafe.Pointer(&request)), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0); errno != 0 {
		return m, errno
	}
	// Offsets in struct statmount: fs_type 36, mnt_parent_id 48, the strings 512.
	m.parent = *(*uint64)(unsafe.Pointer(&b[48]))
	text := b[512+*(*uint32)(unsafe.Pointer(&b[36])):]
	m.kind = unix.ByteSliceToString(text)
	return m, nil
}

func listMount(id uint64) error {
	request := mountID{size: 24, id: id}
	ids := make([]uint64, 64)
	n, _, errno := unix.Syscall6(sysListmount, uintptr(unsafe.Pointer(&request)), uintptr(unsafe.Pointer(&ids[0])), uintptr(len(ids)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	if n == 0 {
		return errCovered
	}
	return nil
}
