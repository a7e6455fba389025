package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/supervisor"
)

// Descriptors in a container, from the end of those that are passed.
const (
	firstPassed = 3
	rootAt      = 5
	cgroupsAt   = 4
	stdinAt     = 3
)

// arrive makes a container of systemd-nspawn's to what init of native expects: its
// process is told to the supervisor, it has the app's streams and the app's root, and
// it is where clone(2) would have left it. An exec, which joins an app, was not passed
// anything.
func arrive() {
	passed, err := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	if err != nil {
		return
	}
	end := firstPassed + passed
	if err := supervisor.Born(firstPassed); err != nil {
		os.Exit(1) // nobody is there to be told
	}
	if err := settle(end-rootAt, end-cgroupsAt, end-stdinAt); err != nil {
		supervisor.Failed(firstPassed, err)
		os.Exit(1)
	}
}

// hostnameVariable has the name that the container is to have unless its spec says
// another.
const hostnameVariable = "RKT_HOSTNAME"

func settle(root, cgroups, stdin int) error {
	if name, ok := os.LookupEnv(hostnameVariable); ok {
		if err := unix.Sethostname([]byte(name)); err != nil {
			return fmt.Errorf("set hostname %q: %w", name, err)
		}
	}
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, appRoot, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the app's root: %w", err)
	}
	// Its namespace of cgroups is none that the app has asked for.
	if err := unix.Setns(cgroups, unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("leave the container's cgroup namespace: %w", err)
	}
	// Read-only, it keeps sysctls from being set.
	if err := unix.Unmount("/proc/sys", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("uncover /proc/sys: %w", err)
	}
	for fd := range 3 {
		if err := unix.Dup3(stdin+fd, fd, 0); err != nil {
			return fmt.Errorf("take over descriptor %d: %w", fd, err)
		}
	}
	return unix.CloseRange(uint(root), uint(stdin+2), 0)
}
