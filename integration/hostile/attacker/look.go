package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// look runs in a victim that was made during an attack. It looks for everything that a
// container should not have. Its arguments name further things to check: "masked=PATH" for a
// file that must be masked, "console" for a /dev/console.
func (t target) look(args []string) {
	t.lookAtDirectory()
	t.lookAtDescriptors()
	t.lookAtMounts()
	lookAtProc()
	lookAtCgroups()
	lookAtDevices()
	for _, a := range args {
		if path, ok := strings.CutPrefix(a, "masked="); ok {
			lookAtMasked(path)
		}
		if a == "console" {
			lookAtConsole()
		}
	}
	state()
}

// up has enough levels to arrive at a root.
const up = "../../../../../../../../../../../.."

// lookAtDirectory tries to leave the container by the working directory.
func (t target) lookAtDirectory() {
	wd, _ := os.Readlink("/proc/self/cwd")
	for _, secret := range t.secrets {
		t.read(up+secret, "by the working directory "+wd)
	}
}

// lookAtDescriptors tries to leave the container by the descriptors that this process has
// inherited.
func (t target) lookAtDescriptors() {
	for fd := 3; fd < 64; fd++ {
		for _, secret := range t.secrets {
			if in, err := unix.Openat(fd, up+secret, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(in)
				link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
				t.read(fmt.Sprintf("/proc/self/fd/%d/%s%s", fd, up, secret), fmt.Sprintf("by descriptor %d, %s", fd, link))
			}
		}
	}
}

// lookAtMounts looks for the secrets in every mount, by their paths from the host's root and by their
// names alone.
func (t target) lookAtMounts() {
	for _, point := range mountPoints("") {
		for _, secret := range t.secrets {
			t.read(point+secret, "in the mount "+point)
			t.read(filepath.Join(point, filepath.Base(secret)), "in the mount "+point)
		}
	}
}

// mountPoints lists the mounts of this namespace, of all types or of those whose type begins
// with kind.
func mountPoints(kind string) (points []string) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil // an attacker has changed /proc: lookAtProc reports that
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		_, rest, _ := strings.Cut(s.Text(), " - ")
		if len(fields) > 4 && strings.HasPrefix(rest, kind) {
			points = append(points, fields[4])
		}
	}
	return points
}

// lookAtProc reports a /proc that is not a procfs, and files of the machine in it that can be
// written.
func lookAtProc() {
	var fs unix.Statfs_t
	if err := unix.Statfs("/proc", &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		got(loot.Proc, "/proc is no procfs: what is written there is lost")
	}
	var st unix.Stat_t
	if unix.Lstat("/proc", &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
		got(loot.Proc, "/proc is a link, and /proc's masks are somewhere else")
	}
	for _, file := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"} {
		if fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			unix.Close(fd)
			got(loot.Write, "%s", file)
		}
	}
}

// lookAtMasked reports a file that should be masked by /dev/null, and is not.
func lookAtMasked(path string) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return // the file does not exist, or cannot be read
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		got(loot.Proc, "%s is masked by something else than the null device", path)
	}
}

// lookAtConsole reports a console that is a file of /proc and not a terminal.
func lookAtConsole() {
	fd, err := unix.Open("/dev/console", unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err == nil && fs.Type == unix.PROC_SUPER_MAGIC {
		link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		got(loot.Write, "/dev/console is a file of /proc's: %s", link)
	}
}

// lookAtCgroups tries to change cgroups. That must fail unless the spec allows the container to
// write there.
func lookAtCgroups() {
	for _, point := range mountPoints("cgroup") {
		dir := filepath.Join(point, "loot")
		if unix.Mkdir(dir, 0o755) == nil {
			_ = unix.Rmdir(dir)
			got(loot.Cgroup, "made one in %s", point)
		}
		for _, file := range []string{"tasks", "cgroup.procs", "release_agent", "notify_on_release"} {
			if fd, err := unix.Open(filepath.Join(point, file), unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(fd)
				got(loot.Cgroup, "%s/%s can be written", point, file)
			}
		}
	}
}

// lookAtDevices makes nodes of the host's disks and memory and opens them.
func lookAtDevices() {
	for _, major := range []uint32{7, 8, 252, 253, 254, 259} { // loop, sd, and those of virtual machines
		tryDevice(unix.S_IFBLK, major, 0)
	}
	for _, d := range [][2]uint32{{1, 1}, {1, 2}, {1, 4}, {1, 11}, {10, 229}} { // mem, kmem, port, kmsg, fuse
		tryDevice(unix.S_IFCHR, d[0], d[1])
	}
}

func tryDevice(kind, major, minor uint32) {
	// A root that a machine shares with its host has no devices, and /dev has.
	for _, dir := range []string{"/tmp", "/dev"} {
		tryNode(fmt.Sprintf("%s/node-%d", dir, os.Getpid()), kind, major, minor)
	}
}

func tryNode(node string, kind, major, minor uint32) {
	if unix.Mknod(node, kind|0o600, int(unix.Mkdev(major, minor))) != nil {
		return
	}
	defer os.Remove(node)
	if fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err == nil {
		unix.Close(fd)
		got(loot.Device, "%d:%d", major, minor)
	}
}
