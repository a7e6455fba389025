package proc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// later is a process that is adopted once it is a child of this one.
type later struct {
	pid           int
	start         uint64
	record, ended func(Exit)
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
	c.forgetSomeReapedLocked()
	if c.owned[pid] != nil {
		return func() bool { return true } // its end has another verdict
	}
	l := &later{pid, startTime, record, ended}
	c.later[pid] = l
	c.laterInTurn = append(c.laterInTurn, l)
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

// lookedAt is at how many processes of earlier calls AdoptLater looks. With more than one per
// call, the number that is remembered approaches the number of those that live.
const lookedAt = 2

// forgetSomeReapedLocked drops processes that their parents have reaped, so that callers need
// not cancel. All get their turn.
func (c *Children) forgetSomeReapedLocked() {
	for range min(lookedAt, len(c.laterInTurn)) {
		l := c.laterInTurn[0]
		c.laterInTurn = c.laterInTurn[1:]
		switch {
		case c.later[l.pid] != l: // adopted, or cancelled
		case errors.Is(unix.Kill(l.pid, 0), unix.ESRCH):
			delete(c.later, l.pid)
		default:
			c.laterInTurn = append(c.laterInTurn, l)
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
	if child, err := c.ownLocked(p); err == nil {
		child.Decide(l.record, l.ended)
	}
	return true
}
