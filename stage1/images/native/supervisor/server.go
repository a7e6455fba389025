package supervisor

import (
	"context"
	"fmt"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
)

// server answers the pod's entrypoints.
func (s *Supervisor) server() *wire.Server {
	return &wire.Server{
		Dispatch: s.dispatch,
		Code:     codeOf,
		Answered: func(c *wire.Call) {
			if c.Entrypoint == abi.Stop {
				s.quit(c.Force)
			}
		},
		Log: s.log,
	}
}

// dispatch serves a call.
func (s *Supervisor) dispatch(ctx context.Context, c *wire.Call) error {
	if c.Entrypoint == abi.Stop {
		s.stop(c.Force)
		return nil
	}
	r, err := readRequest(c.Request, c.Entrypoint)
	if err != nil {
		return err
	}
	switch c.Entrypoint {
	case abi.AppAdd:
		return s.add(ctx, c, r)
	case abi.AppStart:
		return s.start(ctx, r)
	case abi.AppStop:
		return s.stopApp(ctx, r)
	case abi.AppRm:
		return s.remove(ctx, r)
	case abi.AppSignal:
		return s.signal(ctx, r)
	case abi.Enter:
		return s.enter(ctx, c, r)
	}
	return Unsupported("entrypoint %s is not supported", c.Entrypoint)
}

// report writes the ready line of a process. It is no error if the reader has ended.
func report(ready *os.File, pid int, start uint64) {
	if ready != nil {
		_, _ = fmt.Fprintf(ready, "{\"pid\": %d, \"starttime\": %d}\n", pid, start)
	}
}
