package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Service has the functions of the services of one server. Package shim makes them.
type Service struct {
	// Register adds the ttrpc services.
	Register func(*ttrpc.Server)
	// Ending is closed when the service accepts no container any more, because the
	// last one was deleted and a client has called Shutdown. It is closed before the
	// answer to that call: a client that has the answer may call `start` again, which
	// must not find this server. Nil means the same as Done.
	Ending <-chan struct{}
	// Done is closed when the service has ended by itself, after Ending.
	Done <-chan struct{}
	// Close ends a service that is not Done, after a signal. It returns when all
	// queued events were delivered, or when ctx ends. It does not end apps: a signal
	// to the server is not for them.
	Close func(ctx context.Context) error
}

// serve runs the server process.
func (p *Program) serve(ctx context.Context, f *early.Flags) error {
	b, listener, err := p.inherit(f)
	if err != nil {
		return err
	}
	ctx = setLog(ctx, b)
	limitMemory()
	if err := proc.SetSubreaper(); err != nil {
		return err
	}
	s := newServer(b.Socket, listener)
	defer s.retire()
	if s.service, err = p.Serve(ctx, *b); err != nil {
		return err
	}
	if s.service.Ending == nil {
		s.service.Ending = s.service.Done
	}
	return s.run(ctx)
}

// inherit reads the bootstrap and the listener from the descriptors that `start` has
// passed. With -socket it makes both, from the flags and the environment.
func (p *Program) inherit(f *early.Flags) (*Bootstrap, net.Listener, error) {
	if f.Socket != "" {
		b, err := p.byHand(f)
		if err != nil {
			return nil, nil, err
		}
		file, err := early.Listen(f.Socket)
		if err != nil {
			return nil, nil, err
		}
		listener, err := asListener(file)
		return b, listener, err
	}
	// If no `start` has passed these descriptors, the Go runtime may use their
	// numbers.
	if listening, err := unix.GetsockoptInt(listenerFD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listening == 0 {
		return nil, nil, errors.New("a server is started by the action start, or by hand with -socket")
	}
	unix.CloseOnExec(listenerFD)
	unix.CloseOnExec(bootstrapFD)
	b := &Bootstrap{}
	handover := os.NewFile(bootstrapFD, "bootstrap")
	defer handover.Close()
	text, err := io.ReadAll(handover)
	if err == nil {
		err = plainjson.Decode(text, b)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read bootstrap: %w", err)
	}
	listener, err := asListener(os.NewFile(listenerFD, "socket"))
	return b, listener, err
}

// byHand returns the bootstrap of a server that a person starts with -socket.
func (p *Program) byHand(f *early.Flags) (*Bootstrap, error) {
	asked, err := early.ParseRequest(nil, f, os.Getenv)
	if err != nil {
		return nil, err
	}
	r := newRequest(asked)
	r.Group, r.Socket = r.ID, f.Socket
	r.Asked = config.Ask{Type: pinnedStage1(os.Args[0])}
	r.Stage1, err = p.choose(r.Asked)
	return &r.Bootstrap, err
}

func asListener(f *os.File) (net.Listener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on inherited socket: %w", err)
	}
	return l, nil
}
