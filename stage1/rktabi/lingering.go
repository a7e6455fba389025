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

// lingering is a process that moves the output of an app, and may have data left when the
// app has ended.
type lingering struct {
	pid     int
	outputs []*os.File // duplicates of its outputs: pipes or files of the client's
}

// lingers returns the lingering of a process. It is called when the process starts.
func lingers(pid int, stdio [3]*os.File) *lingering {
	l := &lingering{pid: pid}
	for _, f := range stdio[1:] {
		if f == nil {
			continue
		}
		if own, err := duplicate(f, false); err == nil {
			l.outputs = append(l.outputs, own)
		}
	}
	return l
}

func (l *lingering) close() { proc.CloseFiles(l.outputs...) }

// await returns at the end of the call. It kills a call that has done nothing for
// outputGrace although its client has read everything: such a call waits for a process that
// keeps the app's output open after the end of the app.
func (l *lingering) await(k *stage1.Call) {
	for before := l.progress(); ; {
		select {
		case <-k.Ended:
			return
		case <-time.After(outputGrace):
		}
		now := l.progress()
		if now == before && !l.unread() {
			k.Kill()
			return
		}
		before = now
	}
}

// progress has numbers that change while a process, or one that it has started, works. On a
// busy machine the process may not have moved any data when the app ends.
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

// written returns how many bytes a process has written.
func written(pid int) (n int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "wchar: %d", &n); err == nil {
			return n
		}
	}
	return 0
}

// unread reports whether a pipe has data that a client can still read.
func (l *lingering) unread() bool {
	for _, f := range l.outputs {
		fd := int(f.Fd())
		var st unix.Stat_t
		if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
			continue
		}
		look := []unix.PollFd{{Fd: int32(fd)}} // poll reports POLLERR if the pipe has no reader
		if _, err := unix.Poll(look, 0); err != nil || look[0].Revents&unix.POLLERR != 0 {
			continue
		}
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && n > 0 {
			return true
		}
	}
	return false
}
