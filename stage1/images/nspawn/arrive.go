package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/supervisor"
)

// Places of the descriptors that are passed into a container. firstPassed is counted from
// 0, the others from the end.
const (
	firstPassed = 3
	rootAt      = 7
	cgroupsAt   = 6
	procsAt     = 5 // two files
	stdinAt     = 3
)

// Environment variables of init in a container.
const (
	// hostnameVariable has the container's hostname, unless its spec has one.
	hostnameVariable = "RKT_HOSTNAME"
	// pidsVariable is set if one more descriptor is passed: a PID namespace to join.
	// usherVariable is set if a pidfd is passed: that of the process that has joined the
	// namespace.
	pidsVariable = "RKT_PID_NAMESPACE"
	// hostVariable is set if the passed root is the host's.
	hostVariable  = "RKT_HOST"
	usherVariable = "RKT_USHER"
)

// arrive prepares a container of systemd-nspawn for native's init. It reports the process
// to the supervisor, sets the app's streams and root, and moves the process into the
// namespaces in which clone(2) would have made it. For an exec it does nothing, because an
// exec joins an app and gets no descriptors for that.
func arrive() {
	passed, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil {
		return
	}
	end := firstPassed + passed
	if os.Getenv(pidsVariable) != "" {
		err := usher(end)
		if err == nil {
			os.Exit(0)
		}
		tell()
		fail(err)
	}
	if os.Getenv(usherVariable) != "" {
		end--
		err = awaitEnd(end)
	}
	tell()
	if err == nil {
		err = takePlace(end-rootAt, end-cgroupsAt, end-procsAt, end-stdinAt)
	}
	if err != nil {
		fail(err)
	}
}

// tell sends the first message to the supervisor, by which the supervisor learns this
// process's pid.
func tell() {
	if err := supervisor.Announce(firstPassed); err != nil {
		os.Exit(1) // the supervisor has ended
	}
}

func fail(err error) {
	supervisor.Failed(firstPassed, err)
	os.Exit(1)
}

// takePlace sets the hostname, the root, the cgroups and the streams that the passed descriptors
// name, and closes these. procs and procs+1 are the files by which the process leaves
// systemd-nspawn's cgroups: init enters the app's, if the app has some.
func takePlace(root, cgroups, procs, stdin int) error {
	if name, ok := os.LookupEnv(hostnameVariable); ok {
		if err := unix.Sethostname([]byte(name)); err != nil {
			return fmt.Errorf("set hostname %q: %w", name, err)
		}
	}
	if err := attach(root); err != nil {
		return err
	}
	for file := range 2 {
		if _, err := unix.Write(procs+file, []byte("0")); err != nil {
			return fmt.Errorf("leave the container's cgroup: %w", err)
		}
	}
	// Leave systemd-nspawn's cgroup namespace, because the app's spec did not ask for it.
	if err := unix.Setns(cgroups, unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("leave the container's cgroup namespace: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(stdin+fd, fd, 0); err != nil {
			return fmt.Errorf("take over descriptor %d: %w", fd, err)
		}
	}
	return unix.CloseRange(uint(root), uint(stdin+2), 0)
}

// attach makes the app's root, or the host's if that was passed, reachable in a mount namespace
// that has no other mounts of the host.
func attach(root int) error {
	// The host's root becomes the container's, as it would be in a new mount namespace.
	if os.Getenv(hostVariable) != "" {
		return makeBottom(root)
	}
	// The last mount of a new network namespace's sysfs goes. The app's own mount then decides
	// whether the superblock, which all mounts share, can be written to.
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the container's /sys: %w", err)
	}
	own, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("copy the container's root: %w", err)
	}
	defer unix.Close(own)
	// The end of the original must not propagate to the copy.
	private := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if err := unix.MountSetattr(own, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &private); err != nil {
		return fmt.Errorf("set the propagation of the container's root: %w", err)
	}
	if err := makeBottom(own); err != nil {
		return err
	}
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, attachedAt, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach a root: %w", err)
	}
	return nil
}

// makeBottom makes a detached tree the root of this process and the only tree of its mount
// namespace. systemd-nspawn before version 253 mounts the container's root over the host's "/",
// and leaves all mounts of the host below it. There a process with CAP_SYS_ADMIN can unmount the
// container's root and enter the host's, and every process can mount a new procfs and sysfs
// in a user namespace, because the kernel finds one in the namespace that nothing covers.
func makeBottom(tree int) error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("open a pidfd of init: %w", err)
	}
	defer unix.Close(self)
	if err := unix.Unmount("/", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the container's root: %w", err)
	}
	// Enter the mount below the one that has gone. Only a thread that shares its root with no other
	// one may do that.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the root: %w", err)
	}
	if err := unix.Setns(self, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the root of the mount namespace: %w", err)
	}
	return container.ReplaceRoot(tree)
}
