package proc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// later is a process that is adopted once it is a child of this one.
type later struct {
	start         uint64
	record, ended func(Exit)
	adopted       bool
}

// AdoptLater is Adopt for a process that is another's child: if its parent ends first, the
// process is adopted, alive or ended. The caller holds Expect from before the process exists
// until AdoptLater returns.
//
// cancel gives up, and reports whether no function is called: it returns false if the process
// has become a child of this one.
func (c *Children) AdoptLater(pid int, startTime uint64, record, ended func(Exit)) (cancel func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetReapedLocked()
	if c.owned[pid] != nil {
		return func() bool { return true } // its end has another verdict
	}
	l := &later{start: startTime, record: record, ended: ended}
	c.later[pid] = l
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.later[pid] == l { // if it is not there, it was adopted, or forgotten as reaped
			if c.adoptLaterLocked(pid) {
				return false
			}
			delete(c.later, pid)
		}
		return !l.adopted
	}
}

// forgetReapedLocked drops the processes that their parents have reaped, so that callers
// need not cancel.
func (c *Children) forgetReapedLocked() {
	for pid := range c.later {
		if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			delete(c.later, pid)
		}
	}
}

// adoptLaterLocked adopts a process of AdoptLater if it is a child of this one by now.
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
		return false // this is a later process with that pid
	}
	if err != nil {
		return true // out of descriptors: it stays a zombie until the next sweep
	}
	delete(c.later, pid)
	l.adopted = true
	if child, err := c.ownLocked(p); err == nil {
		child.Decide(l.record, l.ended)
	}
	return true
}
