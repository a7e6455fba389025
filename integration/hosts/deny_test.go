package hosts

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denyCommand is the first argument of the test program if it is executed to install a filter and
// to execute another program. Its arguments are the numbers of the system call and of the error, and
// the program with its arguments.
const denyCommand = "deny-system-call"

// denied is a system call that a seccomp filter around containerd denies.
type denied struct {
	name   string
	number uintptr
	errno  unix.Errno
}

// command returns the command before that of a containerd.
func (d denied) command() []string {
	return []string{denier, denyCommand, strconv.Itoa(int(d.number)), strconv.Itoa(int(d.errno))}
}

func denyAndExecute(args []string) error {
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	errno, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	program, err := exec.LookPath(args[2])
	if err != nil {
		return err
	}
	// The filter is this thread's, which executes the program.
	runtime.LockOSThread()
	if err := deny(uint32(number), uint32(errno)); err != nil {
		return err
	}
	return unix.Exec(program, args[2:], os.Environ())
}

// deny installs a filter that returns errno for a system call of this machine's architecture.
func deny(number, errno uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program))); err != 0 {
		return fmt.Errorf("install a seccomp filter: %w", err)
	}
	return nil
}
