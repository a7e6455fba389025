package cgroup

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// signalPasses bounds how often Signal looks for processes that were forked
// while it was at work. Two passes are the rule; more are needed by those that
// take the signal and fork on.
const signalPasses = 100

// Signal sends a signal to every process in the cgroup and below, and does not
// wait for what becomes of them. A process that is forked meanwhile gets it,
// too. SIGKILL reaches all that are there at one moment, frozen ones included,
// and after it they do not fork; this process is never killed.
func (g *Group) Signal(sig syscall.Signal) error {
	var err error
	if sig == syscall.SIGKILL {
		err = g.killNow()
	} else {
		err = g.signalEach(sig)
	}
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", g.Path(), err)
	}
	return nil
}

func (g *Group) killNow() error {
	if _, err := g.mortals(); err != nil {
		return err
	}
	victims, err := g.strike()
	closeAll(victims)
	return err
}

// signalEach signals process by process, each once, until a look at the cgroup
// shows nobody new. The cgroup is not frozen for it: a client may be pausing it.
func (g *Group) signalEach(sig syscall.Signal) error {
	seen := map[int]uint64{} // pid to start time
	var errs []error
	for range signalPasses {
		ps, err := g.open()
		if err != nil {
			closeAll(ps)
			return errors.Join(append(errs, err)...)
		}
		fresh := false
		for _, p := range ps {
			if seen[p.PID()] == p.StartTime() {
				continue
			}
			fresh = true
			seen[p.PID()] = p.StartTime()
			if err := p.Signal(sig); err != nil && !errors.Is(err, proc.ErrGone) {
				errs = append(errs, err)
			}
		}
		closeAll(ps)
		if !fresh {
			break
		}
	}
	return errors.Join(errs...)
}
