package supervisor

import (
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// name identifies the process of an app or, with exec, of an exec in the app.
type name struct{ app, exec string }

func (n name) String() string {
	if n.exec != "" {
		return "exec " + n.exec + " of app " + n.app
	}
	return "app " + n.app
}

// keep makes sure that a child's exit is recorded and announced, even if the child has
// ended already.
func (s *Supervisor) keep(n name, c *proc.Child) {
	c.Decide(func(e proc.Exit) { s.record(n, abi.Status(e)) }, func(e proc.Exit) { s.announce(n, abi.Status(e)) })
}

// record writes an exit to disk. It does not write an exec's exit if the notice has it:
// stage 0 can read the notice after this process has ended, and no other process needs the
// exit, because execs end with their shim.
func (s *Supervisor) record(n name, status abi.Status) {
	if n.exec != "" && s.noticeWords {
		return
	}
	if err := abi.WriteStatus(abi.StatusDir, n.app, n.exec, status); err != nil {
		fmt.Fprintf(s.log, "record the end of %s: %v\n", n, err)
	}
}

// announce sends stage 0 the notice of an exit. If stage 0 has ended, the exit is only in
// the file.
func (s *Supervisor) announce(n name, status abi.Status) {
	s.mu.Lock()
	if n.exec != "" {
		delete(s.execs, n)
	} else if a := s.apps[n.app]; a != nil {
		_ = s.moveLocked(a, stepExit) // legal until the app has ended
	}
	s.mu.Unlock()
	notice := abi.Notice{App: n.app, Exec: n.exec}
	if s.noticeWords {
		notice.Status = &status
	}
	_, _ = s.notices.Write(notice.Format())
}
