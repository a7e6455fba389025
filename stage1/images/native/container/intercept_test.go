package container

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// An adversary acts between two system calls of Init. A seccomp filter makes the
// kernel stop Init at the entry of every intercepted call and notify the test. So
// what is a race elsewhere happens every time here.
type adversary struct {
	calls []int          // system calls to stop at
	act   func(*stopped) // called while Init is stopped at the entry of one
}

// stopped is a system call that Init is about to make.
type stopped struct {
	pid  int
	nr   int
	args [6]uint64
}

// path reads the string that an argument of the call points at.
func (s *stopped) path(arg int) string {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", s.pid))
	if err != nil {
		return ""
	}
	defer mem.Close()
	buf := make([]byte, 256)
	n, _ := mem.ReadAt(buf, int64(s.args[arg]))
	text, _, _ := strings.Cut(string(buf[:n]), "\x00")
	return text
}

const (
	interceptEnv = "TEST_CONTAINER_INTERCEPT" // "SOCKET CALL CALL…"
	agedEnv      = "TEST_CONTAINER_LINUX_5_14"
)

// filterInit loads in this thread the filters for which environment variables ask.
func filterInit() {
	runtime.LockOSThread()
	if os.Getenv(agedEnv) != "" {
		if _, err := loadFilter(linux514(), 0); err != nil {
			panic(err)
		}
	}
	if fields := strings.Fields(os.Getenv(interceptEnv)); len(fields) > 0 {
		var numbers []int
		for _, f := range fields {
			var n int
			if _, err := fmt.Sscan(f, &n); err != nil {
				panic(err)
			}
			numbers = append(numbers, n)
		}
		listener, err := loadFilter(notifying(numbers[1:]), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
		if err == nil {
			err = proc.Send(numbers[0], []byte("listener"), listener)
		}
		if err != nil {
			panic(err)
		}
		unix.Close(listener)
		unix.Close(numbers[0])
	}
	os.Unsetenv(agedEnv)
	os.Unsetenv(interceptEnv)
}

func loadFilter(f []unix.SockFilter, flags uintptr) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	fd, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return -1, fmt.Errorf("load a filter: %w", e)
	}
	return int(fd), nil
}

const (
	offsetNumber = 0  // of struct seccomp_data
	offsetArgs   = 16 // eight bytes each; the lower half first on our architectures
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jump(test uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func verdict(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }

func notifying(calls []int) []unix.SockFilter {
	f := []unix.SockFilter{load(offsetNumber)}
	for _, nr := range calls {
		f = append(f, jump(unix.BPF_JEQ, uint32(nr), 0, 1), verdict(unix.SECCOMP_RET_USER_NOTIF))
	}
	return append(f, verdict(unix.SECCOMP_RET_ALLOW))
}

// linux514 denies the calls and flags of the mount API that Linux 5.14 lacks, with
// the errors that Linux 5.14 returns.
func linux514() []unix.SockFilter {
	const (
		firstNewer   = 448    // process_mrelease, of 5.15
		moveFlags    = 0x77   // 5.15 added MOVE_MOUNT_SET_GROUP, 6.5 MOVE_MOUNT_BENEATH
		lastCommand  = 7      // of fsconfig: 6.6 added FSCONFIG_CMD_CREATE_EXCL
		newerStatx   = 0x4000 // STATX_MNT_ID_UNIQUE of 6.8, and what came later
		denyUnknown  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
		denyFlag     = unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)
		denyOperator = unix.SECCOMP_RET_ERRNO | uint32(unix.EOPNOTSUPP)
	)
	return []unix.SockFilter{
		load(offsetNumber),
		jump(unix.BPF_JGE, firstNewer, 0, 1), verdict(denyUnknown),
		jump(unix.BPF_JEQ, unix.SYS_MOVE_MOUNT, 0, 3),
		load(offsetArgs + 4*8), jump(unix.BPF_JSET, ^uint32(moveFlags), 0, 7), verdict(denyFlag),
		jump(unix.BPF_JEQ, unix.SYS_FSCONFIG, 0, 3),
		load(offsetArgs + 1*8), jump(unix.BPF_JGT, lastCommand, 0, 3), verdict(denyOperator),
		jump(unix.BPF_JEQ, unix.SYS_STATX, 0, 1),
		load(offsetArgs + 3*8), // another call's number has none of these bits
		jump(unix.BPF_JSET, newerStatx, 0, 1), verdict(denyFlag),
		verdict(unix.SECCOMP_RET_ALLOW),
	}
}

// intercept lets the adversary act on a command that becomes Init. The caller calls
// begin when it has started the command, and end when the command has ended.
func (a *adversary) intercept(t *testing.T, cmd *exec.Cmd) (begin func() (end func())) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	theirs := os.NewFile(uintptr(pair[1]), "listener")
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	number := 3 + len(cmd.ExtraFiles) - 1
	cmd.Env = append(cmd.Env, interceptEnv+"="+strings.Trim(fmt.Sprint(append([]int{number}, a.calls...)), "[]"))
	return func() func() {
		theirs.Close()
		defer unix.Close(pair[0])
		_, fds, err := proc.Receive(pair[0], make([]byte, 16), 1)
		must(t, err)
		if len(fds) == 0 {
			t.Fatal("Init has sent no listener")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer unix.Close(fds[0])
			a.serve(fds[0])
		}()
		return func() { <-done } // with the last process under the filter
	}
}

// serve lets the adversary act at every call, and lets the call go on.
func (a *adversary) serve(listener int) {
	const receive, answer = 0xc0502100, 0xc0182101 // SECCOMP_IOCTL_NOTIF_RECV and _SEND
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil || poll[0].Revents&unix.POLLIN == 0 {
			return
		}
		var notice struct {
			id         uint64
			pid, flags uint32
			nr         int32
			arch       uint32
			ip         uint64
			args       [6]uint64
		}
		if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), receive, uintptr(unsafe.Pointer(&notice))); e != 0 {
			continue // the process has been killed meanwhile
		}
		a.act(&stopped{int(notice.pid), int(notice.nr), notice.args})
		reply := struct {
			id    uint64
			value int64
			err   int32
			flags uint32
		}{id: notice.id, flags: 1} // SECCOMP_USER_NOTIF_FLAG_CONTINUE
		unix.Syscall(unix.SYS_IOCTL, uintptr(listener), answer, uintptr(unsafe.Pointer(&reply)))
	}
}
