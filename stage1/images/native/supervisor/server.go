package supervisor

import (
	"context"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

// server answers the pod's calls.
func (s *Supervisor) server() *serve.Server {
	return &serve.Server{
		Dispatch: s.dispatch,
		Code:     serve.CodeOf,
		Answered: func(c *serve.Asked) {
			s.memory.Touch()
			if c.Entrypoint == abi.Stop {
				s.quit(c.Force)
			}
		},
		Log: s.log,
	}
}

// dispatch serves a call.
func (s *Supervisor) dispatch(ctx context.Context, c *serve.Asked) error {
	if err := checkRequest(c.Request); err != nil {
		return err
	}
	switch c.Entrypoint {
	case abi.Stop:
		s.stop(c.Force)
		return nil
	case abi.AppAdd:
		return s.add(ctx, c)
	case abi.AppStart:
		return s.start(ctx, c.Request)
	case abi.AppStop:
		return s.stopApp(ctx, c.Request)
	case abi.AppRm:
		return s.remove(ctx, c.Request)
	case abi.AppSignal:
		return s.signal(ctx, c.Request)
	case abi.Enter:
		return s.enter(ctx, c)
	}
	return serve.Unsupported("entrypoint %s is not supported", c.Entrypoint)
}

// report writes a ready line. It ignores errors, because the reader may have
// ended.
func report(to *os.File, r abi.Ready) {
	if to != nil {
		line, _ := plainjson.Encode(r) // numbers and a word
		_, _ = to.Write(append(line, '\n'))
	}
}
