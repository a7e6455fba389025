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

	"github.com/rkt/containerd-shim-rkt-v1/abi"
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

// errReported is the error of a server that has reported an error to `start`, which prints it.
var errReported = errors.New("reported to start")

// serve runs the server process.
func (p *Program) serve(ctx context.Context, f *early.Flags) error {
	if f.Socket != "" {
		return p.serveByHand(ctx, f)
	}
	// If no `start` has passed these descriptors, the Go runtime may use their
	// numbers.
	if listening, err := unix.GetsockoptInt(early.ListenerFD, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listening == 0 {
		return errors.New("a server is started by the action start, or by hand with -socket")
	}
	h, listener, err := inherit()
	if err != nil {
		early.Report(err)
		return errReported
	}
	b, err := p.bootstrap(h)
	ctx = setLog(ctx, b)
	if err != nil {
		p.failed(h, err)
		err = errors.New(proc.ExplainDenied(abi.Printable(err.Error())))
	}
	switch heard := early.Report(err); {
	case !heard:
		newServer(b.Socket, listener).retire()
		return errors.New("the start that has started this server has ended: ending")
	case err != nil:
		return errReported
	}
	s := newServer(b.Socket, listener)
	defer s.retire()
	return p.run(ctx, s, b)
}

// serveByHand runs a server that a person starts with -socket. Its parameters are the flags and
// the environment.
func (p *Program) serveByHand(ctx context.Context, f *early.Flags) error {
	r, err := early.ParseRequest(nil, f, os.Getenv)
	if err != nil {
		return err
	}
	h := r.Handover("", nil)
	h.Group, h.Socket = h.ID, f.Socket
	b, err := p.bootstrap(h)
	if err != nil {
		return err
	}
	file, err := early.Listen(f.Socket)
	if err != nil {
		return err
	}
	listener, err := asListener(file)
	if err != nil {
		return err
	}
	s := newServer(b.Socket, listener)
	defer s.retire()
	return p.run(setLog(ctx, b), s, b)
}

// bootstrap makes the bootstrap of a server, and checks that there can be pods on
// this node. `start` waits for that, because only its error reaches the client. The bootstrap is
// never nil.
func (p *Program) bootstrap(h *early.Handover) (*Bootstrap, error) {
	b := &Bootstrap{Handover: *h}
	b.Asked = config.Ask{Type: pinnedStage1(os.Args[0])}
	o, err := runtimeOptions(h.Extensions)
	if err != nil {
		return b, err
	}
	b.Asked.Options = o.Stage1
	ask := b.Asked
	ask.Annotations, b.Annotations = h.Annotations, nil
	if b.Stage1, err = p.choose(ask); err != nil {
		return b, err
	}
	if b.Cgroups == nil {
		if b.Cgroups, err = p.Cgroups(); err != nil {
			return b, err
		}
	}
	if err := proc.CheckProcfs(); err != nil {
		return b, err
	}
	if err := p.DataDir(); err != nil {
		return b, err
	}
	if p.Layers != nil && p.Layers(b.Stage1) {
		if err := early.SayLayers(b.Socket); err != nil {
			return b, fmt.Errorf("mode of the socket: %w", err)
		}
	}
	return b, nil
}

// run runs the services of a server.
func (p *Program) run(ctx context.Context, s *server, b *Bootstrap) (err error) {
	limitMemory()
	if err := proc.SetSubreaper(); err != nil {
		return err
	}
	if s.service, err = p.Serve(ctx, *b); err != nil {
		return err
	}
	if s.service.Ending == nil {
		s.service.Ending = s.service.Done
	}
	return s.run(ctx)
}

// inherit reads the handover and the listener from the descriptors that `start` has passed.
func inherit() (*early.Handover, net.Listener, error) {
	for _, fd := range []int{early.ListenerFD, early.HandoverFD, early.ReportFD} {
		unix.CloseOnExec(fd)
	}
	h := &early.Handover{}
	handover := os.NewFile(early.HandoverFD, "handover")
	defer handover.Close()
	text, err := io.ReadAll(handover)
	if err == nil {
		err = plainjson.Decode(text, h)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read handover: %w", err)
	}
	listener, err := asListener(os.NewFile(early.ListenerFD, "socket"))
	return h, listener, err
}

func asListener(f *os.File) (net.Listener, error) {
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen on inherited socket: %w", err)
	}
	return l, nil
}
