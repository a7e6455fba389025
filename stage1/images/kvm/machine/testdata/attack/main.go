// Command attack runs where QEMU runs. When it is told to, it tries what a guest would try that has
// taken QEMU over, and prints a line for each attack that was successful.
//
//	attack PID ABSTRACT: a process of the host, and the name of an abstract socket of the host
package main

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// told is the descriptor by which attack is told to begin.
const told = 3

func main() {
	if _, err := unix.Read(told, make([]byte, 1)); err != nil {
		fmt.Println("read:", err)
	}
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Println(err)
	}
	files()
	identity()
	for name, attack := range map[string]func() error{
		"signal a process of the host":   func() error { return unix.Kill(pid, 0) },
		"signal all processes":           func() error { return unix.Kill(-1, 0) },
		"trace a process of the host":    func() error { return unix.PtraceAttach(pid) },
		"change its user":                func() error { return unix.Setuid(0) },
		"change its group":               func() error { return unix.Setgid(0) },
		"make a user namespace":          func() error { return unix.Unshare(unix.CLONE_NEWUSER) },
		"make a mount namespace":         func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		"mount":                          func() error { return unix.Mount("t", "/", "tmpfs", 0, "") },
		"change its root":                func() error { return unix.Chroot("/") },
		"make a device":                  func() error { return unix.Mknod("/device", unix.S_IFCHR|0o600, 259) },
		"make a file":                    func() error { return os.WriteFile("/file", nil, 0o600) },
		"make a directory":               func() error { return os.Mkdir("/directory", 0o700) },
		"reach an abstract socket":       func() error { return dial("unix", "@"+os.Args[2]) },
		"reach the loopback of the host": func() error { return dial("tcp", "127.0.0.1:22") },
		"change the hostname":            func() error { return unix.Sethostname([]byte("a")) },
		"use memory of System V":         sharedMemory,
		"enter a namespace by a process": func() error { return enter(pid) },
	} {
		if attack() == nil {
			fmt.Println("could", name)
		}
	}
	fmt.Println("tried")
}

// files prints the files that can be reached.
func files() {
	for _, dir := range []string{"/", "..", "/..", "."} {
		_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
			if path != dir {
				fmt.Println("found", path)
			}
			return nil
		})
	}
	for fd := range 1024 {
		var s unix.Stat_t
		if unix.Fstat(fd, &s) == nil && s.Mode&unix.S_IFMT != unix.S_IFIFO && (fd > told || s.Mode&unix.S_IFMT == unix.S_IFDIR) && !own(fd) {
			fmt.Printf("found descriptor %d of mode %o\n", fd, s.Mode)
		}
	}
}

// own reports whether Go's runtime has made the descriptor: it is closed on exec.
func own(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC != 0
}

// identity prints privileges.
func identity() {
	groups, err := unix.Getgroups()
	if unix.Getuid() == 0 || unix.Geteuid() == 0 || unix.Getgid() == 0 || len(groups) > 0 || err != nil {
		fmt.Println("is", unix.Getuid(), unix.Getgid(), groups, err)
	}
	header, data := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if err := unix.Capget(&header, &data[0]); err != nil || data != [2]unix.CapUserData{} {
		fmt.Println("has capabilities", data, err)
	}
	for c := range 64 {
		if in, _ := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); in > 0 {
			fmt.Println("may get capability", c)
		}
	}
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); set != 1 {
		fmt.Println("may get privileges", err)
	}
	if os.Getpid() != 1 || os.Getppid() != 0 {
		fmt.Println("is process", os.Getpid(), "of", os.Getppid())
	}
	if env := os.Environ(); len(env) != 1 || env[0] != "MALLOC_ARENA_MAX=1" {
		fmt.Println("has the environment", env)
	}
}

func dial(network, address string) error {
	conn, err := net.Dial(network, address)
	if err == nil {
		conn.Close()
	}
	return err
}

// sharedMemory finds memory that the test has made on the host.
func sharedMemory() error {
	_, err := unix.SysvShmGet(0x6b766d, 0, 0)
	return err
}

func enter(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNET)
}
