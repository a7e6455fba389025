package seccomp

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// On x86 the calls for sockets and for System V IPC were once reached through
// two multiplexers, whose first argument tells which one is meant, and most of
// them have a number of their own since Linux 4.3. A rule must hold for both
// ways, or the other way would go around it.

// socketcalls lists what socketcall(2) multiplexes, by number less one.
func socketcalls() []string {
	return []string{
		"socket", "bind", "connect", "listen", "accept", "getsockname", "getpeername",
		"socketpair", "send", "recv", "sendto", "recvfrom", "shutdown", "setsockopt",
		"getsockopt", "sendmsg", "recvmsg", "accept4", "recvmmsg", "sendmmsg",
	}
}

// ipcs lists what ipc(2) multiplexes, by number less one.
func ipcs() []string {
	return []string{
		0: "semop", 1: "semget", 2: "semctl", 3: "semtimedop",
		10: "msgsnd", 11: "msgrcv", 12: "msgget", 13: "msgctl",
		20: "shmat", 21: "shmdt", 22: "shmget", 23: "shmctl",
	}
}

// multiplexed returns the multiplexer of a system call on an architecture and
// the value of its first argument that stands for it.
func (a *architecture) multiplexed(name string) (number uint32, selector uint64, ok bool) {
	if a.socketcall != 0 {
		if i := slices.Index(socketcalls(), name); i >= 0 {
			return a.socketcall, uint64(i + 1), true
		}
	}
	if a.ipc != 0 {
		if i := slices.Index(ipcs(), name); i >= 0 {
			return a.ipc, uint64(i + 1), true
		}
	}
	return 0, 0, false
}

// throughMultiplexer rewrites a rule's conditions for the multiplexer. As with
// libseccomp the selector takes the place of a condition on the first argument,
// and the others stay as they are, although no filter can see the arguments, to which there
// is only a pointer.
func throughMultiplexer(conditions []condition, selector uint64) []condition {
	rewritten := []condition{{arg: 0, op: specs.OpEqualTo, mask: ^uint64(0), datum: selector}}
	for _, c := range conditions {
		if c.arg != 0 {
			rewritten = append(rewritten, c)
		}
	}
	return rewritten
}
