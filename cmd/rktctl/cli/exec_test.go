package cli

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// lastExec is a shim whose container ends by its exec, and is removed before Start is answered.
type lastExec struct {
	task.TTRPCTaskService
	ended chan struct{}
}

var errGone = errgrpc.ToGRPC(errdefs.ErrNotFound)

func (s *lastExec) Exec(context.Context, *task.ExecProcessRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (s *lastExec) Start(context.Context, *task.StartRequest) (*task.StartResponse, error) {
	synctest.Wait() // whoever waits for the exec does so by now
	close(s.ended)
	return &task.StartResponse{}, nil
}

func (s *lastExec) Wait(_ context.Context, _ *task.WaitRequest) (*task.WaitResponse, error) {
	select {
	case <-s.ended:
		return nil, errGone
	default:
		<-s.ended
		return &task.WaitResponse{ExitStatus: 3}, nil
	}
}

func (s *lastExec) Delete(context.Context, *task.DeleteRequest) (*task.DeleteResponse, error) {
	return nil, errGone
}

func TestAnExecThatEndsItsContainerHasItsExitCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &execution{env: &Env{Stdout: io.Discard, Stderr: io.Discard}, args: []string{"end"}}
		s := &server{TTRPCTaskService: &lastExec{ended: make(chan struct{})}, pod: &view.Pod{}}
		var code exitError
		if err := x.run(t.Context(), s, &view.App{ID: "a"}, nil); !errors.As(err, &code) || code != 3 {
			t.Errorf("the exec of a container that it has ended: %v", err)
		}
	})
}
