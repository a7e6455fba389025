package supervisor

import (
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/older"
)

var _ chronicle = (*Supervisor)(nil)

// record writes an exit to disk.
func (s *Supervisor) record(n name, status abi.Status) {
	if n.exec == "" && s.shared {
		s.sweep(n.app)
	}
	var err error
	if s.older != nil {
		err = older.Record(n.app, n.exec, status)
	} else {
		err = abi.WriteStatus(abi.StatusDir, n.app, n.exec, status)
	}
	if err != nil {
		fmt.Fprintf(s.log, "record the end of %s: %v\n", n, err)
	}
}

// announce tells stage 0 of a recorded exit. It may be dead, and then learns of
// it from the disk.
func (s *Supervisor) announce(n name) {
	s.mu.Lock()
	if n.exec != "" {
		delete(s.execs, n)
	} else if a := s.apps[n.app]; a != nil {
		_ = s.moveLocked(a, stepExit) // legal in every state of a living app
	}
	s.mu.Unlock()
	line := "exit " + n.app
	if n.exec != "" {
		line += " " + n.exec
	}
	_, _ = s.notices.Write([]byte(line + "\n"))
}
