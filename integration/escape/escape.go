// Package escape has attacks of a container without a seccomp profile on the host's mounts. The
// programs that the suites run in containers call Main. The attacks change nothing: files are
// opened for writing and closed again, and mounts are made in namespaces of their own.
package escape

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main makes one attack and writes its result to out:
//
//	fresh TYPE   mounts a new procfs or sysfs in new user, PID, network and mount namespaces.
//	             The result is "mounted, N files open for write", or the kernel's error.
//	below PATH   unmounts "/" and enters the root of its own mount namespace. The result is
//	             "found PATH" if that file is there, and "not found" otherwise.
//
// The caller's program must call Main with the arguments after the word "escape", because an attack
// executes the program again.
func Main(out io.Writer, args []string) error {
	switch args[0] {
	case "fresh":
		return fresh(out, args[1])
	case "mount":
		return mountFresh(out, args[1])
	case "below":
		return below(out, args[1])
	}
	return fmt.Errorf("escape: unknown attack %q", args[0])
}

// fresh executes this program again in new namespaces, with this process's user as root.
func fresh(out io.Writer, kind string) error {
	cmd := exec.Command("/proc/self/exe", "escape", "mount", kind)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
	}
	err := cmd.Run()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		_, err = fmt.Fprintln(out, "no user namespace:", err)
	}
	return err
}

func mountFresh(out io.Writer, kind string) error {
	on := map[string]string{"proc": "/proc", "sysfs": "/sys"}[kind]
	if err := unix.Mount(kind, on, kind, 0, ""); err != nil {
		_, err = fmt.Fprintln(out, err)
		return err
	}
	_, err := fmt.Fprintf(out, "mounted, %d files open for write\n", writable(on))
	return err
}

// writable counts the files below a directory that this process can open for writing. In a procfs
// they are those of the kernel, not of processes.
func writable(dir string) (n int) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.Type()&fs.ModeSymlink != 0:
		case d.IsDir():
			if name := d.Name(); path != dir && filepath.Dir(path) == "/proc" && strings.Trim(name, "0123456789") == "" {
				return fs.SkipDir
			}
		default:
			if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(fd)
				n++
			}
		}
		return nil
	})
	return n
}

// below needs CAP_SYS_ADMIN and CAP_SYS_CHROOT.
func below(out io.Writer, path string) error {
	runtime.LockOSThread()
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_FS) },
		func() error { return unix.Unmount("/", unix.MNT_DETACH) },
		func() error { return unix.Setns(self, unix.CLONE_NEWNS) },
		func() error { return unix.Access(path, unix.F_OK) },
	} {
		if err := step(); errors.Is(err, unix.ENOENT) {
			_, err = fmt.Fprintln(out, "not found")
			return err
		} else if err != nil {
			_, err = fmt.Fprintln(out, err)
			return err
		}
	}
	_, err = fmt.Fprintln(out, "found", path)
	return err
}
