package main

import (
	"context"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/supervisor"
)

// supervisor returns the supervisor of the machine's pod.
func (a *agent) supervisor() (*supervisor.Supervisor, error) {
	if err := supervisor.Undumpable(); err != nil {
		return nil, err
	}
	return supervisor.New(supervisor.Options{
		Children:    proc.NewChildren(),                                   // reaps, as process 1 has to
		Record:      func(_, _ string, _ abi.Status) error { return nil }, // the host does, when it has the notice
		Notify:      a.passOn,
		Console:     a.terminals.keep,
		Log:         os.Stderr, // the console, which the host keeps
		HolderEnded: a.holderEnded,
	})
}

// passOn passes a notice of the supervisor on.
func (a *agent) passOn(n abi.Notice) {
	a.terminals.end(processID{n.App, n.Exec})
	if n.Exec == "" {
		a.ended(n.App)
	}
	a.notify(n)
}

// run serves run: the pod is there, and may have a holder.
func (a *agent) run(c *call) error {
	if c.Run.Sandbox != nil {
		if err := describeHolder(c.Run); err != nil {
			return err
		}
	}
	leader, err := a.pod.Lead(c.Run)
	if err != nil {
		return err
	}
	return c.ready(leader)
}

// pass makes a call of the supervisor that makes no process.
func (a *agent) pass(ctx context.Context, r *abi.Request) error {
	return a.pod.Dispatch(ctx, &serve.Asked{Request: r})
}
