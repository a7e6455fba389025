package supervisor

import (
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Lead serves run: it starts the holder if the pod is a sandbox. It returns the pod's process, which
// is this one if there is no holder.
func (s *Supervisor) Lead(r *abi.Request) (leader abi.Ready, err error) {
	if r.Sandbox != nil {
		c, err := s.hold(r)
		if err != nil {
			return leader, err
		}
		return abi.Ready{PID: c.PID(), StartTime: c.StartTime()}, nil
	}
	leader.PID = os.Getpid()
	leader.StartTime, err = proc.StartTime(leader.PID)
	return leader, err
}

// hold starts the holder in the same way as an app. Its program is in the bundle of the
// request. No call can name the holder, and its exit is not recorded, because stage 0
// itself waits for it.
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
	if err := s.begin(s.ctx, a, &serve.Asked{Request: r, Stdio: [3]*os.File{null, null, null}}); err != nil {
		return nil, fmt.Errorf("holder of the pod: %w", err)
	}
	i := a.init
	defer i.close()
	defer i.leave()
	if err = i.ready(s.ctx); err == nil {
		err = i.release(s.ctx)
	}
	if err != nil {
		err = a.returnNetDevices(explain(s.ctx, err, i.child.PID(), i.child.Drop()))
		return nil, fmt.Errorf("holder of the pod: %w", err)
	}
	a.devices.Close()
	i.child.Decide(nil, s.HolderEnded)
	return i.child, nil
}
