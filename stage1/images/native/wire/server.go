package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/seqpacket"
)

// Server answers the calls of one pod's entrypoints.
type Server struct {
	// Dispatch serves a call, whose files it does not close. The context ends with
	// Serve's, and when the caller has gone.
	Dispatch func(context.Context, *Call) error
	// Code is the exit code of a call that Dispatch has answered with an error or nil.
	Code func(error) int
	// Answered is called after each answer.
	Answered func(*Call)
	// Log is for messages that no caller gets.
	Log io.Writer
}

// shortage is the pause after a connection that could not be accepted.
const shortage = 100 * time.Millisecond

// Serve answers calls until ctx has ended and the listener is closed, and
// returns when all are answered.
func (s *Server) Serve(ctx context.Context, listener seqpacket.Socket) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		conn, err := listener.Accept()
		if err != nil && ctx.Err() != nil {
			return // the pod is being stopped, and run has closed the listener
		}
		if err != nil {
			// Descriptors or memory have run out. Calls that end give some back.
			fmt.Fprintf(s.Log, "accept a call: %v\n", err)
			time.Sleep(shortage)
			continue
		}
		calls.Go(func() { s.converse(ctx, conn) })
	}
}

// converse answers one call.
func (s *Server) converse(ctx context.Context, conn seqpacket.Socket) {
	var watch sync.WaitGroup
	defer watch.Wait()
	defer conn.Close()
	call, err := receive(conn)
	if err == io.EOF {
		return // a client that was killed before it could speak
	}
	if err != nil {
		err = fmt.Errorf("the pod's supervisor cannot take the call: %w", err)
		fmt.Fprintln(s.Log, err)
		_ = conn.Send(EncodeReply(s.Code(err), err.Error()))
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch.Go(func() {
		_, _ = conn.Read(make([]byte, 1)) // the client sends no more
		cancel(errors.New("the caller has gone"))
	})
	err = s.Dispatch(ctx, call)
	if err != nil && call.Error != nil && err.Error() != "" {
		_, _ = io.WriteString(call.Error, strings.TrimRight(err.Error(), "\n")+"\n")
	}
	call.Close() // before the answer, so that this process has no end of an app's stdio then
	_ = conn.Send(EncodeReply(s.Code(err), ""))
	s.Answered(call)
}

func receive(conn seqpacket.Socket) (*Call, error) {
	packet, fds, err := conn.Receive(MaxFiles)
	if err != nil {
		return nil, err
	}
	return Decode(packet, fds)
}
