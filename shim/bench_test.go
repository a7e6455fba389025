package shim

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
)

// bench is a service with a fake pod, served over ttrpc, and a fake containerd that
// accepts its events.
type bench struct {
	t      *testing.T
	svc    *Service
	pod    *fakePod
	sink   *containerd
	client *ttrpc.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	checkFDs(t)
	b := &bench{t: t, sink: newContainerd(t)}
	b.sink.start()
	svc, err := New(ServiceConfig{
		Stage1:        config.NewPod(config.Choice{Name: "native"}, config.Ask{}, nil),
		Namespace:     "testing",
		EventsAddress: b.sink.path,
		Children:      children,
		NewPod: func(e pod.Events) Pod {
			b.pod = newFakePod(e)
			return b.pod
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.svc = svc
	b.serve()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
		defer cancel()
		if err := svc.Close(ctx); err != nil {
			t.Error(err)
		}
		b.pod.mu.Lock()
		defer b.pod.mu.Unlock()
		for _, q := range b.pod.procs {
			_ = q.stdio.Close()
		}
	})
	return b
}

// serve connects a client with the service over a socket pair.
func (b *bench) serve() {
	b.t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if conns[i], err = net.FileConn(f); err != nil {
			b.t.Fatal(err)
		}
		_ = f.Close()
	}
	srv, err := ttrpc.NewServer()
	if err != nil {
		b.t.Fatal(err)
	}
	b.svc.Register(srv)
	l := &oneConn{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
	l.conn <- conns[0]
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(context.Background(), l)
	}()
	b.client = ttrpc.NewClient(conns[1])
	b.t.Cleanup(func() {
		_ = b.client.Close()
		_ = srv.Close()
		<-served
		// A server that is closed before it has accepted the connection leaves it open.
		_ = conns[0].Close()
	})
}

// oneConn is a listener with one connection.
type oneConn struct {
	conn   chan net.Conn
	closed chan struct{}
	once   atomic.Bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *oneConn) Close() error {
	if l.once.CompareAndSwap(false, true) {
		close(l.closed)
	}
	return nil
}

func (l *oneConn) Addr() net.Addr { return &net.UnixAddr{} }

// call makes one call.
func call[Response any](b *bench, method string, req any) (*Response, error) {
	b.t.Helper()
	resp := new(Response)
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	err := b.client.Call(ctx, serviceV3, method, req, resp)
	return resp, err
}

// must makes one call that has to succeed.
func must[Response any](b *bench, method string, req any) *Response {
	b.t.Helper()
	resp, err := call[Response](b, method, req)
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	return resp
}

// bundle makes a bundle with a config.json.
func bundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"ociVersion":"1.2.0"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (b *bench) create(id string) *task.CreateTaskRequest {
	b.t.Helper()
	req := &task.CreateTaskRequest{ID: id, Bundle: bundle(b.t)}
	must[task.CreateTaskResponse](b, "Create", req)
	return req
}

func (b *bench) addExec(id, exec string) {
	b.t.Helper()
	must[emptypb.Empty](b, "Exec", execRequest(id, exec))
}

func execRequest(id, exec string) *task.ExecProcessRequest {
	return &task.ExecProcessRequest{ID: id, ExecID: exec, Spec: &anypb.Any{
		TypeUrl: "types.containerd.io/opencontainers/runtime-spec/1/Process",
		Value:   []byte(`{"args":["true"],"cwd":"/"}`),
	}}
}

func wantCode(t *testing.T, err error, want codes.Code, what string) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}

// packed packs a message as containerd does.
func packed(m proto.Message) (*anypb.Any, error) {
	b, err := proto.Marshal(m)
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: b}, err
}
