package fork

import (
	"encoding/binary"
	"runtime"

	"golang.org/x/sys/unix"
)

// call is what a filter sees of a system call, apart from arguments that are addresses or no concern of
// a filter.
type call struct {
	number uint32
	args   [2]uint64
}

// callsAfterPrepare returns the system calls that a process makes after plan.prepare.
func callsAfterPrepare(terminal bool) []call {
	calls := []call{
		{number: unix.SYS_CAPSET}, {number: unix.SYS_CLONE, args: [2]uint64{unix.CLONE_PARENT}}, {number: unix.SYS_WRITE},
		{number: unix.SYS_EXIT_GROUP}, {number: unix.SYS_READ}, {number: unix.SYS_SETSID}, {number: unix.SYS_PRLIMIT64}, {number: unix.SYS_EXECVE},
	}
	if terminal {
		calls = append(calls, call{number: unix.SYS_IOCTL, args: [2]uint64{0, unix.TIOCSCTTY}})
	}
	return calls
}

// allows reports whether a filter allows all of the calls. For an instruction that it does not know, it
// returns false.
func allows(filter []byte, calls []call) bool {
	for i := range calls {
		if verdict(filter, &calls[i]) != unix.SECCOMP_RET_ALLOW {
			return false
		}
	}
	return true
}

// architecture is what the kernel says of this program's system calls.
func architecture() uint32 {
	if runtime.GOARCH == "arm64" {
		return unix.AUDIT_ARCH_AARCH64
	}
	return unix.AUDIT_ARCH_X86_64
}

// word returns a word of struct seccomp_data.
func (c *call) word(at uint32) uint32 {
	const number, arch, args = 0, 4, 16
	switch {
	case at == number:
		return c.number
	case at == arch:
		return architecture()
	case at < args || at >= args+8*uint32(len(c.args)):
		return 0
	}
	return uint32(c.args[(at-args)/8] >> (8 * (at % 8)))
}

// verdict runs a filter, as seccomp(2) describes its instructions. It has the instructions of
// package seccomp.
func verdict(filter []byte, c *call) uint32 {
	const size = unix.SizeofSockFilter
	var a uint32
	for pc := 0; (pc+1)*size <= len(filter); pc++ { // jumps only go forward
		i := filter[pc*size:]
		k := binary.NativeEndian.Uint32(i[4:])
		taken := false
		switch binary.NativeEndian.Uint16(i) {
		case unix.BPF_RET | unix.BPF_K:
			return k
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = c.word(k)
			continue
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= k
			continue
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(k)
			continue
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = a == k
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			taken = a > k
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			taken = a >= k
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = a&k != 0
		default:
			return unix.SECCOMP_RET_KILL_PROCESS
		}
		if taken {
			pc += int(i[2])
		} else {
			pc += int(i[3])
		}
	}
	return unix.SECCOMP_RET_KILL_PROCESS
}
