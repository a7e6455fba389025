package rktabi

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// lingering is what reports whether a process that carries the output of an app, which has
// ended, has something to carry still.
type lingering struct {
	pid     int
	outputs []int // its own, which are whole pipes or files of the client's
}

// lingers looks at a process from its start.
func lingers(pid int, stdio [3]*os.File) *lingering {
	l := &lingering{pid: pid}
	for _, f := range stdio[1:] {
		if f == nil {
			continue
		}
		if fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3); err == nil {
			l.outputs = append(l.outputs, fd)
		}
	}
	return l
}

func (l *lingering) close() {
	for _, fd := range l.outputs {
		_ = unix.Close(fd)
	}
	l.outputs = nil
}

// await returns at the end of the call. One that has done nothing for outputGrace,
// although its client has read everything, is killed: something keeps the output open
// after the end of the app.
func (l *lingering) await(k *stage1.Call) {
	for before := l.progress(); ; {
		grace := time.NewTimer(outputGrace)
		select {
		case <-k.Ended:
			grace.Stop()
			return
		case <-grace.C:
		}
		now := l.progress()
		if now == before && !l.unread() {
			k.Kill()
			return
		}
		before = now
	}
}

// progress is what changes while a process, or one that it has started, does something:
// on a busy machine it may be a while until it has begun to carry.
type progress struct {
	written   int64  // bytes
	ticks     uint64 // of processor time
	processes int
}

func (l *lingering) progress() (p progress) {
	all := []int{l.pid}
	for ; p.processes < len(all); p.processes++ {
		pid := all[p.processes]
		all = append(all, immutable.ChildrenOf(pid)...)
		p.written += written(pid)
		if s, err := proc.ReadStat(pid); err == nil {
			p.ticks += s.Ticks
		}
	}
	return p
}

// written is how many bytes a process has written.
func written(pid int) (n int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "wchar: %d", &n); err == nil {
			return n
		}
	}
	return 0
}

// unread reports whether there is something in a pipe that a client has not read and can
// read still.
func (l *lingering) unread() bool {
	for _, fd := range l.outputs {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		look := []unix.PollFd{{Fd: int32(fd)}} // nobody has it open to read: POLLERR
		if _, err := unix.Poll(look, 0); err != nil || look[0].Revents&unix.POLLERR != 0 {
			continue
		}
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && n > 0 {
			return true
		}
	}
	return false
}
