package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// reach looks, in new user, mount and cgroup namespaces, for the cgroup of another container, by its
// name. It mounts every hierarchy that /proc/self/cgroup names, and version 2. It prints where it has
// found the cgroup, and the files there that it can open for writing. It writes nothing.
func reach(name string) {
	own, err := os.ReadFile("/proc/self/cgroup")
	must(err)
	cmd := exec.Command("/proc/self/exe", "reach-inside", name, string(own))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	must(cmd.Run())
	fmt.Println("done")
}

// reachInside is reach in its new user and mount namespace. own is the text of /proc/self/cgroup.
func reachInside(name, own string) {
	must(unix.Unshare(unix.CLONE_NEWCGROUP))
	searchHierarchy("", name)
	for line := range strings.Lines(own) {
		if f := strings.SplitN(line, ":", 3); len(f) == 3 && f[1] != "" {
			searchHierarchy(f[1], name)
		}
	}
}

// searchHierarchy mounts a hierarchy and looks for a cgroup in it. "" is version 2.
func searchHierarchy(hierarchy, name string) {
	const at = "/tmp"
	kind, options := "cgroup", hierarchy
	switch {
	case hierarchy == "":
		kind = "cgroup2"
	case strings.HasPrefix(hierarchy, "name="):
		options = "none," + hierarchy
	}
	if err := unix.Mount(kind, at, kind, 0, options); err != nil {
		return
	}
	defer func() { must(unix.Unmount(at, unix.MNT_DETACH)) }()
	_ = filepath.WalkDir(at, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != name {
			return nil
		}
		fmt.Printf("found %q%s\n", hierarchy, strings.TrimPrefix(path, at))
		for _, file := range []string{"cgroup.procs", "cgroup.kill", "cgroup.freeze", "tasks"} {
			if fd, err := unix.Open(filepath.Join(path, file), unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(fd)
				fmt.Printf("can write %q%s/%s\n", hierarchy, strings.TrimPrefix(path, at), file)
			}
		}
		return nil
	})
}
