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
	adopted       bool
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
	c.forgetSomeReapedLocked()
	if c.owned[pid] != nil {
		return func() bool { return true } // the process is owned already, so neither function is called
	}
	l := &later{pid: pid, start: startTime, record: record, ended: ended}
	c.later[pid] = l
	c.laterInTurn = append(c.laterInTurn, l)
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

// lookedAt is at how many processes of earlier calls AdoptLater looks. With more than one per
// call, the number that is remembered approaches the number of those that live.
const lookedAt = 2

// forgetSomeReapedLocked drops processes that their parents have reaped, for callers that do
// not call cancel. Every process gets its turn.
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

// adoptLaterLocked adopts a process of AdoptLater if it has become a child of this one.
func (c *Children) adoptLaterLocked(pid int) bool {
	l := c.later[pid]
	if l == nil {
		return false
	}
	child, err := c.takeLocked(pid, l.start)
	if errors.Is(err, ErrNotChild) || errors.Is(err, ErrGone) { // gone: another process has the pid by now
		return false
	}
	if err != nil {
		return true // no descriptor is free: the process stays a zombie until the next sweep
	}
	delete(c.later, pid)
	l.adopted = true
	child.Decide(l.record, l.ended)
	c.look() // it may have ended
	return true
}
