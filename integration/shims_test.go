package integration

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/ttrpc"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// shim asks a container's shim, over its socket, for its pid.
func (c *column) shim(t *testing.T, id string) int {
	t.Helper()
	return c.shimOf(t, c.daemon.Bundle(id), id)
}

func (c *column) shimOf(t *testing.T, bundle, id string) int {
	t.Helper()
	shim := c.dialShim(t, bundle)
	defer shim.client.Close()
	var r taskapi.ConnectResponse
	shim.call(t, "Connect", &taskapi.ConnectRequest{ID: id}, &r)
	return int(r.ShimPid)
}

// shimConn sends calls to a shim as containerd does, without containerd.
type shimConn struct {
	client    *ttrpc.Client
	service   string
	namespace string
}

func (c *column) dialShim(t *testing.T, bundle string) shimConn {
	t.Helper()
	var bootstrap struct {
		Address  string `json:"address"`
		Protocol string `json:"protocol"`
		Version  int    `json:"version"`
	}
	if c.release.old {
		bootstrap.Address = read(t, filepath.Join(bundle, "address"))
	} else if err := json.Unmarshal([]byte(read(t, filepath.Join(bundle, "bootstrap.json"))), &bootstrap); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("unix", strings.TrimPrefix(bootstrap.Address, "unix://"), wait.Patience)
	if err != nil {
		t.Fatal(err)
	}
	service := "containerd.task.v3.Task"
	if c.release.old {
		service = "containerd.task.v2.Task"
	}
	return shimConn{ttrpc.NewClient(conn), service, c.daemon.Namespace()}
}

// call makes a call that must succeed.
func (s shimConn) call(t *testing.T, method string, request, response any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), s.namespace), wait.Patience)
	defer cancel()
	if err := s.client.Call(ctx, s.service, method, request, response); err != nil {
		t.Fatalf("%s of the shim: %v", method, err)
	}
}

// descriptors lists the files that a shim has open, when their number no longer changes.
func (c *column) descriptors(t *testing.T, shim int) []string {
	t.Helper()
	var last []string
	for range 20 {
		now, err := leaks.Descriptors(shim)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(now)
		if slices.Equal(kinds(now), kinds(last)) {
			return now
		}
		last = now
		time.Sleep(50 * time.Millisecond)
	}
	return last
}

// kinds removes the inode numbers of pipes and sockets.
func kinds(targets []string) []string {
	var out []string
	for _, t := range targets {
		kind, _, _ := strings.Cut(t, ":[")
		out = append(out, kind)
	}
	return out
}
