package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/registry"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// node is a containerd that a client uses with one runtime, in one of containerd's namespaces.
type node struct {
	*daemon.Daemon
	runtime string
	// env makes a client pull from a registry that has baseImage.
	env []string
	// except are the client's processes, which are not remains of containers.
	except []int
	known  leaks.Pods
}

// baseImage is busybox with a user games, whom containerd-stress wants.
const baseImage = "images.test/busybox:latest"

// each runs a test with each runtime, one after the other: with the default stage1, and in the
// full suite with oci and with runc's shim, too.
func each(t *testing.T, namespace string, test func(t *testing.T, n *node)) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	runtimes := []string{"io.containerd.rkt.v1"}
	if full() {
		runtimes = append(runtimes, "io.containerd.rkt-oci.v1", "io.containerd.runc.v2")
	}
	for _, name := range runtimes {
		t.Run(strings.TrimPrefix(name, "io.containerd."), func(t *testing.T) {
			n := startNode(t, name, namespace)
			test(t, n)
			n.expectNothingLeft(t)
		})
	}
}

func startNode(t *testing.T, name, namespace string) *node {
	t.Helper()
	n := &node{runtime: name}
	// Each node has a directory of its own. It is short, because sockets are in it.
	dir, err := os.MkdirTemp("/run", "n")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := n.known.Watch(filepath.Join(dir, "rkt")); err != nil {
		t.Fatal(err)
	}
	if n.Daemon, err = daemon.Start(t.Context(), daemon.Options{
		Dir: dir, Programs: programsDir, Shims: []string{shimsDir},
		Env: []string{"RKT_DATA_DIR=" + filepath.Join(dir, "rkt")}, Namespace: namespace, LogLevel: "info",
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log ends with:\n%s", n.LogTail(20))
		}
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	n.serveImage(t)
	return n
}

// serveImage serves baseImage until the test ends.
func (n *node) serveImage(t *testing.T) {
	t.Helper()
	busybox, err := image.Busybox()
	if err != nil {
		t.Fatal(err)
	}
	img := image.Image{Name: baseImage, Layers: [][]image.File{busybox, {
		{Name: "etc/passwd", Mode: 0o644, Content: []byte("root:x:0:0:root:/root:/bin/sh\ngames:x:5:60:games:/tmp:/bin/sh\n")},
	}}}
	img.Config.Env = []string{"PATH=/bin"}
	r := registry.New()
	if err := r.Add(img, ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}); err != nil {
		t.Fatal(err)
	}
	proxy, err := registry.Serve(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	env, err := proxy.Environment(filepath.Join(t.TempDir(), "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	n.env = append(os.Environ(), env...)
}

// expectNothingLeft fails the test unless the client has removed all its containers, and the
// shims have left nothing.
func (n *node) expectNothingLeft(t *testing.T) {
	t.Helper()
	client, err := n.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(context.Background(), n.Namespace()), time.Minute*wait.Slowness)
	defer cancel()
	wait.Observe(t, "the client has removed its containers", func() (bool, string) {
		containers, err := client.Containers(ctx)
		return err == nil && len(containers) == 0, fmt.Sprint(len(containers), err)
	})
	scope := leaks.Scope{
		Dir: n.Dir(), Namespace: n.Namespace(), Except: append([]int{n.PID(), os.Getpid()}, n.except...),
		Empty: []string{n.Bundle("")},
	}
	if n.ours() { // runc's shim leaves sockets of groups behind
		scope.Empty = append(scope.Empty, daemon.SocketDir(n.Dir()))
	}
	for _, state := range []string{"embryo", "prepare", "prepared", "run", "exited-garbage", "garbage"} {
		scope.Empty = append(scope.Empty, filepath.Join(n.Dir(), "rkt/pods", state))
	}
	if scope.Pods, err = n.known.Of(filepath.Join(n.Dir(), "rkt")); err != nil {
		t.Fatal(err)
	}
	wait.Observe(t, "nothing of the containers is left", func() (bool, string) {
		left, err := scope.Remains()
		return err == nil && len(left) == 0, fmt.Sprint(strings.Join(left, "\n\t"), err)
	})
}

// ours reports whether the runtime is a stage1 of ours.
func (n *node) ours() bool { return strings.HasPrefix(n.runtime, "io.containerd.rkt") }
