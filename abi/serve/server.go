package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Asked is a call that the stage1 has received.
type Asked struct {
	*abi.Request
	Stdio [3]*os.File // the app's, in app/add and enter
	// Made, which may be nil, gets the process that the call has made.
	Made func(abi.Ready)

	conn *Conn
}

// Ready reports the process that the call has made. It ignores errors, because the caller
// may have ended.
func (a *Asked) Ready(r abi.Ready) {
	if a.Made != nil {
		a.Made(r)
	}
	if a.conn == nil {
		return
	}
	if line, err := plainjson.Encode(r); err == nil {
		_ = a.conn.Send(Ready, line)
	}
}

// Gone reports whether the caller has hung up. Then the call is to be undone, although the
// context of Dispatch may end only a moment later.
func (a *Asked) Gone() (gone bool) {
	if a.conn == nil {
		return false
	}
	_ = proc.Control(a.conn.file, func(fd int) error {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(poll, 0)
		gone = n > 0
		return err
	})
	return gone
}

// Answer sends the document that the call asks for. It is no error if the caller has gone.
func (a *Asked) Answer(document []byte) {
	if a.conn != nil {
		_ = a.conn.Send(Answer, document)
	}
}

// Server answers the calls of one pod.
type Server struct {
	// Dispatch serves a call. It must not close the call's files. The context ends with
	// Serve's, and when the caller has ended.
	Dispatch func(context.Context, *Asked) error
	// Code is the exit code of a call that Dispatch has answered with an error or nil.
	Code func(error) int
	// Answered is called after each answer.
	Answered func(*Asked)
	// Log gets messages for which no caller waits.
	Log io.Writer
}

// shortage is the pause after a connection that could not be accepted.
const shortage = 100 * time.Millisecond

// Serve answers calls on a non-blocking listening socket until ctx has ended and the socket
// is closed. It returns when all calls are answered.
func (s *Server) Serve(ctx context.Context, listener *os.File) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		fd, err := proc.Accept(listener)
		if err != nil && ctx.Err() != nil {
			return // the pod is being stopped, and the listener is closed
		}
		if err != nil {
			// Descriptors or memory have run out. Calls that end release some.
			fmt.Fprintf(s.Log, "accept a call: %v\n", err)
			time.Sleep(shortage)
			continue
		}
		calls.Go(func() { s.converse(ctx, fd) })
	}
}

// converse answers one call.
func (s *Server) converse(ctx context.Context, fd int) {
	var watch sync.WaitGroup
	defer watch.Wait()
	conn := NewConn(fd)
	defer conn.Close()
	wait := context.AfterFunc(ctx, func() { _ = conn.file.SetReadDeadline(time.Now()) }) // the caller may never send its call
	asked, err := receive(fd, conn)
	wait()
	if err == io.EOF {
		return // the caller was killed before it sent a call
	}
	if err != nil {
		fmt.Fprintf(s.Log, "a call: %v\n", err)
		s.answer(conn, fmt.Errorf("the pod's supervisor cannot take the call: %w", err))
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch.Go(func() {
		_, _ = conn.file.Read(make([]byte, 1)) // returns when the caller hangs up, because it sends nothing more
		cancel(errors.New("the caller has gone"))
	})
	err = s.Dispatch(ctx, asked)
	asked.close() // before the answer, so that this process no longer has the app's stdio open
	s.answer(conn, err)
	s.Answered(asked)
}

// answer sends the result of a call.
func (s *Server) answer(conn *Conn, err error) {
	if err != nil && err.Error() != "" {
		text := strings.TrimRight(err.Error(), "\n")
		_ = conn.Send(Error, []byte(text[:min(len(text), MaxAnswer)]))
	}
	_ = conn.Send(Exit, strconv.AppendInt(nil, int64(s.Code(err)), 10))
}

// receive returns the call of a connection. The caller of the stage1 is root.
func receive(fd int, conn *Conn) (*Asked, error) {
	if err := isRoot(fd); err != nil {
		return nil, err
	}
	word, body, err := conn.Receive(MaxRequest)
	if err != nil {
		return nil, err
	}
	if word != Call {
		return nil, fmt.Errorf("%w: %.20q", errMessage, word)
	}
	a := &Asked{Request: &abi.Request{}, conn: conn}
	if err := plainjson.Decode(body, a.Request); err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	files := conn.Files()
	for _, f := range files[copy(a.Stdio[:], files):] {
		f.Close()
	}
	return a, nil
}

func (a *Asked) close() {
	for _, f := range a.Stdio {
		if f != nil {
			f.Close()
		}
	}
}
