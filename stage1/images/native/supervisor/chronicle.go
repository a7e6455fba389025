package supervisor

import (
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// name says whose process a child is: an app's, or an exec's in it.
type name struct{ app, exec string }

func (n name) String() string {
	if n.exec != "" {
		return "exec " + n.exec + " of app " + n.app
	}
	return "app " + n.app
}

// keep has a child's exit recorded and announced, also one that was before.
func (s *Supervisor) keep(n name, c *proc.Child) {
	c.Decide(func(e proc.Exit) { s.record(n, abi.Status(e)) }, func(e proc.Exit) { s.announce(n, abi.Status(e)) })
}

// record writes an exit to disk. The exit of an exec is not written if its notice says
// how it ended: stage 0 reads that from the pipe even after this process has died, and
// nobody asks for an exec whose shim has died.
func (s *Supervisor) record(n name, status abi.Status) {
	if n.exec != "" && s.noticeWords {
		return
	}
	if err := abi.WriteStatus(abi.StatusDir, n.app, n.exec, status); err != nil {
		fmt.Fprintf(s.log, "record the end of %s: %v\n", n, err)
	}
}

// announce tells stage 0 of an exit. It may be dead, and then learns of it from the
// disk.
func (s *Supervisor) announce(n name, status abi.Status) {
	s.mu.Lock()
	if n.exec != "" {
		delete(s.execs, n)
	} else if a := s.apps[n.app]; a != nil {
		_ = s.moveLocked(a, stepExit) // legal in every state of a living app
	}
	s.mu.Unlock()
	notice := abi.Notice{App: n.app, Exec: n.exec}
	if s.noticeWords {
		notice.Status = &status
	}
	_, _ = s.notices.Write(notice.Format())
}
