package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// When a process joins a PID namespace, the process itself stays outside and only its
// children are inside. systemd-nspawn cannot join the namespace, because it uses the pids
// of its container's processes. So the first process of the container joins it, starts
// init again as its child, and ends.

// usher starts init again in a PID namespace. The namespace's descriptor is end-1.
func usher(end int) error {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("open a pidfd of init: %w", err)
	}
	exe, err := os.OpenFile("/proc/self/exe", unix.O_PATH, 0)
	if err != nil {
		return err
	}
	files := make([]*os.File, end)
	for fd := range end - 1 {
		files[fd] = os.NewFile(uintptr(fd), fmt.Sprint("descriptor ", fd))
	}
	files[end-1] = os.NewFile(uintptr(self), "pidfd of init")
	pids := os.NewFile(uintptr(end-1), "PID namespace")
	if err := os.Unsetenv(pidsVariable); err != nil {
		return err
	}
	_, err = fork.Start(context.Background(), &fork.Process{
		Exe:   exe,
		Args:  []string{initName},
		Env:   append(os.Environ(), usherVariable+"=1"),
		Files: files,
		Joins: []fork.Join{{What: "the PID namespace", File: pids, Flags: unix.CLONE_NEWPID}},
	})
	return err
}

// awaitEnd returns when the process of a pidfd has ended. The children of that process
// then belong to systemd-nspawn, which is a subreaper, and later to the supervisor, which
// inherits them.
func awaitEnd(pidfd int) error {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the process that has joined the PID namespace: %w", err)
		}
		return unix.Close(pidfd)
	}
}
