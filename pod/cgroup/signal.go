package cgroup

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// signalPasses bounds how often Signal looks for processes that were forked meanwhile.
// Usually there are two passes. There are more if processes handle the signal and continue
// to fork.
const signalPasses = 100

// Signal sends a signal to every process in the cgroup and below, and does not wait for its
// effect. A process that is forked meanwhile gets the signal, too. SIGKILL reaches all
// processes that exist at one moment, including frozen ones, and none of them can fork
// after that. Signal never kills this process.
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
	if none, done, err := g.killAtOnce(); none || done || err != nil {
		return err
	}
	if _, err := g.killable(); err != nil {
		return err
	}
	victims, err := g.killAll()
	closeAll(victims)
	return err
}

// signalEach signals each process once, until a list of the cgroup has no new process. It
// does not freeze the cgroup, because a client may be pausing it.
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
