package proc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// later is a process that is adopted once it is a child of this one.
type later struct {
	start         uint64
	record, ended func(Exit)
}

// AdoptLater is Adopt for a process that is still the child of another process: if that
// parent ends first, this process adopts the child, running or ended. The caller holds
// Expect from before the process exists until AdoptLater returns.
//
// cancel cancels the adoption. It returns false if the process has already become a child
// of this one, and true if neither function will be called.
func (c *Children) AdoptLater(pid int, startTime uint64, record, ended func(Exit)) (cancel func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetReapedLocked()
	if c.owned[pid] != nil {
		return func() bool { return true } // the process is owned already, so neither function is called
	}
	l := &later{startTime, record, ended}
	c.later[pid] = l
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.later[pid] != l || c.adoptLaterLocked(pid) {
			return false
		}
		delete(c.later, pid)
		return true
	}
}

// forgetReapedLocked drops the processes that their parents have reaped, for callers that
// do not call cancel.
func (c *Children) forgetReapedLocked() {
	for pid := range c.later {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			delete(c.later, pid)
		}
	}
}

// adoptLaterLocked adopts a process of AdoptLater if it has become a child of this one.
func (c *Children) adoptLaterLocked(pid int) bool {
	l := c.later[pid]
	if l == nil {
		return false
	}
	if _, _, err := waitid(unix.P_PID, pid, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT); err != nil {
		return false
	}
	p, err := Open(pid, l.start)
	if errors.Is(err, ErrGone) {
		return false // another process has the pid by now
	}
	if err != nil {
		return true // no descriptor is free: the process stays a zombie until the next sweep
	}
	delete(c.later, pid)
	if child, err := c.ownLocked(p); err == nil {
		child.Decide(l.record, l.ended)
	}
	return true
}
