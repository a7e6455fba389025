package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rkt/containerd-shim-rkt-v1/wire"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// eventsService is the name of containerd's service.
const eventsService = "containerd.services.events.ttrpc.v1.Events"

// forwardLimit is how long containerd may take to accept one event.
const forwardLimit = 5 * time.Second

// forwarder calls containerd's Events service. Only the queue's goroutine uses it.
type forwarder struct {
	address string // path of the socket; empty: events go nowhere
	client  *ttrpc.Client
}

func newForwarder(address string) *forwarder {
	return &forwarder{address: strings.TrimPrefix(address, "unix://")}
}

// forward delivers one event. A connection that turns out to be closed, because
// containerd was restarted since the last event, is replaced at once.
func (f *forwarder) forward(ctx context.Context, e *types.Envelope) error {
	if f.address == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, forwardLimit)
	defer cancel()
	old := f.client != nil
	err := f.try(ctx, e)
	if old && errors.Is(err, ttrpc.ErrClosed) {
		err = f.try(ctx, e)
	}
	return err
}

func (f *forwarder) try(ctx context.Context, e *types.Envelope) error {
	if f.client == nil {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", f.address)
		if err != nil {
			return fmt.Errorf("connect to containerd's events: %w", err)
		}
		f.client = ttrpc.NewClient(conn)
	}
	err := wire.Call(ctx, f.client, eventsService, "Forward", &types.ForwardRequest{Envelope: e}, &struct{}{})
	if err != nil && !refusedForGood(err) {
		// Close the connection after a timeout, too: a late answer must not be taken for
		// the answer of the next call.
		f.close()
	}
	return err
}

func (f *forwarder) close() {
	if f.client == nil {
		return
	}
	_ = f.client.Close()
	// The client's goroutine ends with the connection, which is closed now.
	_ = f.client.UserOnCloseWait(context.Background())
	f.client = nil
}

// refusedForGood reports whether containerd will never accept an event. Any other error
// may come from a containerd that is stopping or starting.
func refusedForGood(err error) bool {
	return status.Code(err) == codes.InvalidArgument
}
