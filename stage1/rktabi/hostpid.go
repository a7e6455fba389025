package rktabi

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// mainPID returns the host pid of an app's first process: the first one below the
// supervisor that is in the cgroup of the app's unit, as rkt's images with systemd
// have it, else the one that `enter` is given.
func (s *adapter) mainPID(c pod.Call) int {
	leader := s.Leader(c)
	if pid := unitPID(leader, c.Request.App); pid != 0 {
		return pid
	}
	return leader
}

// unitPID looks below a process for the first one that is in the cgroup of a unit.
// It returns 0 if there is none.
func unitPID(below int, unit string) int {
	if inUnit(below, unit) {
		return below
	}
	return firstBelow(below, func(pid int) bool { return inUnit(pid, unit) })
}

// firstBelow returns the descendant of a process that matches and is nearest to it, or
// 0 if there is none.
func firstBelow(pid int, match func(pid int) bool) int {
	for queue := immutable.ChildrenOf(pid); len(queue) > 0; {
		pid := queue[0]
		if match(pid) {
			return pid
		}
		queue = append(queue[1:], immutable.ChildrenOf(pid)...)
	}
	return 0
}

// inUnit reports whether a process is in the cgroup of a unit of systemd's.
func inUnit(pid int, unit string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(strings.TrimSpace(line)+"/", "/"+unit+".service/") {
			return true
		}
	}
	return false
}

// signalPID signals a process that cannot be mistaken: its pidfd is opened first.
func signalPID(pid int, sig syscall.Signal) error {
	err := proc.Signal(pid, 0, sig)
	if errors.Is(err, proc.ErrGone) {
		return fmt.Errorf("process already finished: %w", errdefs.ErrNotFound)
	}
	return err
}

// entered returns the program that an `enter` has made or become: the nearest process,
// from itself down, that is no entrypoint any more and has left the root of the machine,
// where an `enter` has helpers of its own. It returns 0 if there is none yet.
func entered(enter int, entrypoint string) int {
	inside := func(pid int) bool { return !isCall(pid, entrypoint) && hasItsOwnRoot(pid) }
	if inside(enter) {
		return enter
	}
	return firstBelow(enter, inside)
}

// hasItsOwnRoot reports whether the root of a process is not that of the machine. One that
// has ended has none.
func hasItsOwnRoot(pid int) bool {
	its, err := os.Stat(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil {
		return false
	}
	ours, err := os.Stat("/")
	return err == nil && !os.SameFile(its, ours)
}

// isCall reports whether a process still is an entrypoint, or a fork of it: a program
// has its path first, a script behind that of its interpreter.
func isCall(pid int, entrypoint string) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(text), "\x00")
	return slices.Contains(args[:min(3, len(args))], entrypoint)
}
