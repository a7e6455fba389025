package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
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

// terminalExec is a shim that notes the calls of an exec at a terminal.
type terminalExec struct {
	task.TTRPCTaskService
	calls []string
	ended chan struct{}
}

func (s *terminalExec) Exec(context.Context, *task.ExecProcessRequest) (*emptypb.Empty, error) {
	s.calls = append(s.calls, "Exec")
	return &emptypb.Empty{}, nil
}

func (s *terminalExec) ResizePty(_ context.Context, r *task.ResizePtyRequest) (*emptypb.Empty, error) {
	s.calls = append(s.calls, fmt.Sprintf("ResizePty %dx%d", r.Width, r.Height))
	return &emptypb.Empty{}, nil
}

func (s *terminalExec) Start(context.Context, *task.StartRequest) (*task.StartResponse, error) {
	s.calls = append(s.calls, "Start")
	close(s.ended)
	return &task.StartResponse{}, nil
}

func (s *terminalExec) Wait(context.Context, *task.WaitRequest) (*task.WaitResponse, error) {
	<-s.ended
	return &task.WaitResponse{}, nil
}

func (s *terminalExec) Delete(context.Context, *task.DeleteRequest) (*task.DeleteResponse, error) {
	s.calls = append(s.calls, "Delete")
	select {
	case <-s.ended:
	default:
		close(s.ended) // an exec that was not started
	}
	return &task.DeleteResponse{}, nil
}

func TestAProgramStartsWithItsTerminalTakenOverAndItsSizeSet(t *testing.T) {
	master, slave, err := proc.OpenTerminal(0)
	if err != nil {
		t.Skip(err)
	}
	tty := os.NewFile(uintptr(slave), "slave")
	defer tty.Close()
	defer unix.Close(master)
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 99}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stdin io.Reader
		want  []string
	}{
		"a terminal":  {tty, []string{"Exec", "ResizePty 99x33", "Start", "Delete"}},
		"no terminal": {strings.NewReader(""), []string{"Exec", "Delete"}},
	} {
		x := &execution{env: &Env{Stdin: c.stdin, Stdout: io.Discard, Stderr: io.Discard}, args: []string{"sh"}, terminal: true}
		shim := &terminalExec{ended: make(chan struct{})}
		err := x.run(t.Context(), &server{TTRPCTaskService: shim, pod: &view.Pod{}}, &view.App{ID: "a"}, nil)
		if started := slices.Contains(c.want, "Start"); started != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(shim.calls, c.want) {
			t.Errorf("%s: calls %q, want %q", name, shim.calls, c.want)
		}
	}
}
