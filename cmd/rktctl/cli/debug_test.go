package cli

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/shim/debug"
)

// asks sends a request to a server with these services.
func asks(t *testing.T, services map[string]*ttrpc.ServiceDesc) error {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range services {
		server.RegisterService(name, s)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), l) }()
	defer func() {
		_ = server.Close()
		if err := <-served; !errors.Is(err, ttrpc.ErrServerClosed) {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	st, err := client.NewStream(t.Context(), &ttrpc.StreamDesc{StreamingClient: true, StreamingServer: true}, debug.Service, debug.Stream, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conversation{st}.request(&debug.Request{App: "a"})
	return err
}

// A shim of a release without the service goes on after an upgrade. The error says so, and differs
// from the one of a stage1 that cannot have debug apps.
func TestAnOldShimIsNamedAsTheReasonWhyAPodCannotBeDebugged(t *testing.T) {
	other := &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{}}
	if err := asks(t, map[string]*ttrpc.ServiceDesc{"containerd.task.v2.Task": other}); !errors.Is(err, errOldShim) {
		t.Errorf("without the service: %v", err)
	}
	refuses := &ttrpc.ServiceDesc{Streams: map[string]ttrpc.Stream{debug.Stream: {StreamingClient: true, StreamingServer: true,
		Handler: func(_ context.Context, st ttrpc.StreamServer) (any, error) {
			if err := st.RecvMsg(&anypb.Any{}); err != nil {
				return nil, err
			}
			return nil, errgrpc.ToGRPC(errors.Join(errors.New("container a cannot be debugged: its stage1 fly adds no app"), errdefs.ErrNotImplemented))
		}}}}
	err := asks(t, map[string]*ttrpc.ServiceDesc{debug.Service: refuses})
	if errors.Is(err, errOldShim) || !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "its stage1 fly") {
		t.Errorf("a refusal: %v", err)
	}
}
