package supervisor

import (
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
)

// settleIn starts the holder of a sandbox's pod, and returns the pid to report.
func (s *Supervisor) settleIn(r *abi.Request) (leader int, err error) {
	if r.Sandbox == nil {
		return os.Getpid(), nil
	}
	c, err := s.hold(r)
	if err != nil {
		return 0, err
	}
	return c.PID(), nil
}

// hold starts the holder, the program of the request's bundle, as an app is started. No call
// can name it, and its exit is not recorded, because stage 0 waits for it.
func (s *Supervisor) hold(r *abi.Request) (*proc.Child, error) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("streams of the pod's holder: %w", err)
	}
	defer null.Close()
	a := &app{container: r.Container, bundle: r.Bundle}
	if a.spec, err = decodeSpec(r.Spec); err != nil {
		return nil, err
	}
	hold.WithoutProc(a.spec)
	if err := s.begin(s.ctx, a, &wire.Call{Stdio: [3]*os.File{null, null, null}}, r); err != nil {
		return nil, fmt.Errorf("holder of the pod: %w", err)
	}
	l := a.launch
	defer l.words.Close()
	defer l.leave()
	if err = l.ready(s.ctx); err == nil {
		if err = l.say(container.WordStart); err == nil {
			err = l.executed(s.ctx)
		}
	}
	if err != nil {
		err = explain(s.ctx, err, l.child.PID(), l.child.Drop())
		return nil, fmt.Errorf("holder of the pod: %w", err)
	}
	l.child.Decide(nil, nil) // it is only reaped
	return l.child, nil
}
