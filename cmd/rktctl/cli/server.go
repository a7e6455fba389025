package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/pod/view"
)

// server is a connection to the shim of a pod.
type server struct {
	task.TTRPCTaskService
	client *ttrpc.Client
	pod    *view.Pod
}

// dialLimit is the time for connecting to a shim and for its first answer, which it has in
// memory.
const dialLimit = 5 * time.Second

// dial connects to the shim that serves a pod. It is an error if no shim is running, or if
// another shim answers at the address that containerd has stored.
func dial(ctx context.Context, p *view.Pod, a *view.App) (*server, error) {
	if !p.Served() {
		return nil, fmt.Errorf("the shim of pod %s is dead, so nothing can start a process in it: containerd will delete its containers", p.UUID)
	}
	path := early.StoredSocket(a.Bundle)
	if path == "" {
		return nil, fmt.Errorf("containerd has stored no address of a shim in %s", a.Bundle)
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to the shim of pod %s: %w", p.UUID, err)
	}
	client := ttrpc.NewClient(conn)
	s := &server{task.NewTTRPCTaskClient(client), client, p}
	r, err := s.Connect(s.in(ctx), &task.ConnectRequest{ID: a.ID})
	if err == nil && int(r.ShimPid) != p.Shim.PID {
		err = fmt.Errorf("process %d serves %s, and the pod's shim is process %d", r.ShimPid, path, p.Shim.PID)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the shim of pod %s: %w", p.UUID, errgrpc.ToNative(err)), s.Close())
	}
	return s, nil
}

// in returns a context with the pod's namespace in its metadata, as containerd sends it.
func (s *server) in(ctx context.Context) context.Context {
	return ttrpc.WithMetadata(ctx, ttrpc.MD{"containerd-namespace-ttrpc": []string{s.pod.Namespace}})
}

// Close closes the connection.
func (s *server) Close() error { return s.client.Close() }
