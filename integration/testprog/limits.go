package main

import (
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keepLimits executes a program whose changes of its resource limits succeed without effect: it
// gets a filter that answers setrlimit, and prlimit with new limits. A program that ends unless
// it may open 100000 files then runs where a lower limit cannot be raised.
func keepLimits(args []string) {
	path, err := exec.LookPath(args[0])
	must(err)
	const (
		load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		is   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		end  = unix.BPF_RET | unix.BPF_K

		number   = 0  // offset of the system call's number in struct seccomp_data
		thirdLow = 32 // of the lower half of its third argument, the new limits, on little-endian machines
		succeed  = unix.SECCOMP_RET_ERRNO
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: is, K: unix.SYS_SETRLIMIT, Jt: 4},
		{Code: is, K: unix.SYS_PRLIMIT64, Jf: 2},
		{Code: load, K: thirdLow},
		{Code: is, K: 0, Jf: 1},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
		{Code: end, K: succeed},
	}
	// The filter belongs to the thread that executes the program.
	runtime.LockOSThread()
	must(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	must(unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0))
	must(syscall.Exec(path, args, syscall.Environ()))
}
