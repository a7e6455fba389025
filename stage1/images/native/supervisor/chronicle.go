package supervisor

import (
	"fmt"
	"os"

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

func (s *Supervisor) record(n name, status abi.Status) {
	if err := s.Record(n.app, n.exec, status); err != nil {
		fmt.Fprintf(s.Log, "record the end of %s: %v\n", n, err)
	}
}

func (s *Supervisor) announce(n name, status abi.Status) {
	s.mu.Lock()
	if n.exec != "" {
		delete(s.execs, n)
	} else if a := s.apps[n.app]; a != nil {
		_ = s.moveLocked(a, stepExit) // legal until the app has ended
	}
	s.mu.Unlock()
	s.Notify(abi.Notice{App: n.app, Exec: n.exec, Status: &status})
}

// chronicle returns the options of a supervisor whose exits are in files, and are announced on
// RKT_NOTIFY_FD. words says that stage 0 accepts notices with an exit. Then the exit of an exec is in
// no file: stage 0 can read the notice after this process has ended, and no other process needs the
// exit, because execs end with their shim. If stage 0 has ended, the exit of an app is only in the file.
func chronicle(words bool, e Spawner) Options {
	notices := proc.Inherited(abi.EnvNotifyFD)
	return Options{
		Spawner: e, Children: proc.NewChildren(), Log: os.Stderr,
		Record: func(app, exec string, s abi.Status) error {
			if exec != "" && words {
				return nil
			}
			return abi.WriteStatus(abi.StatusDir, app, exec, s)
		},
		Notify: func(n abi.Notice) {
			if !words {
				n.Status = nil
			}
			_, _ = notices.Write(n.Format())
		},
		Console: forward,
	}
}
