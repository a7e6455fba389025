package seccomp

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// On x86 the calls for sockets and for System V IPC were originally made through two
// multiplexers, whose first argument selects the call. Since Linux 4.3 most of them also
// have a number of their own. A rule must apply to both ways, because programs could evade a
// rule that applies to only one.

// socketcalls lists the calls that socketcall(2) multiplexes. The index is the selector
// less one.
func socketcalls() []string {
	return []string{
		"socket", "bind", "connect", "listen", "accept", "getsockname", "getpeername",
		"socketpair", "send", "recv", "sendto", "recvfrom", "shutdown", "setsockopt",
		"getsockopt", "sendmsg", "recvmsg", "accept4", "recvmmsg", "sendmmsg",
	}
}

// ipcs lists the calls that ipc(2) multiplexes. The index is the selector less one.
func ipcs() []string {
	return []string{
		0: "semop", 1: "semget", 2: "semctl", 3: "semtimedop",
		10: "msgsnd", 11: "msgrcv", 12: "msgget", 13: "msgctl",
		20: "shmat", 21: "shmdt", 22: "shmget", 23: "shmctl",
	}
}

// multiplexed returns the multiplexer of a system call on an architecture, and the value of
// the multiplexer's first argument that selects the call.
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

// throughMultiplexer rewrites a rule's conditions for the multiplexer. As with libseccomp,
// the selector replaces a condition on the first argument. The other conditions stay as
// they are, although they then test the wrong values: the multiplexer gets a pointer to the
// arguments, which no filter can follow.
func throughMultiplexer(conditions []condition, selector uint64) []condition {
	rewritten := []condition{{arg: 0, op: specs.OpEqualTo, mask: ^uint64(0), datum: selector}}
	for _, c := range conditions {
		if c.arg != 0 {
			rewritten = append(rewritten, c)
		}
	}
	return rewritten
}
