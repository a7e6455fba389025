package local

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/rkt/containerd-shim-rkt-v1/options"
	"github.com/rkt/containerd-shim-rkt-v1/pod/bundlefile"
	"github.com/rkt/containerd-shim-rkt-v1/sandbox"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
)

const (
	// Namespace is the namespace that servers of local pods are told.
	Namespace = "rkt"
	// socketDir is the directory of their sockets.
	socketDir = "/run/rkt/s"
	// addressPrefix is the form of an address.
	addressPrefix = "unix://"
	// bootstrapFile tells the shim's `delete` the server's address, as containerd's does.
	bootstrapFile = "bootstrap.json"
	// bundleFile is the server's record of a bundle (docs/layout.md).
	bundleFile = bundlefile.Record
)

// FindShim returns the path of the shim's program: the one beside this program, or else the one
// in $PATH.
func FindShim() (string, error) {
	const name = "containerd-shim-rkt-v1"
	if self, err := os.Readlink("/proc/self/exe"); err == nil {
		beside := filepath.Join(filepath.Dir(self), name)
		if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the shim, which serves pods without containerd: %w", err)
	}
	return path, nil
}

// startServer starts the server of a pod as containerd does, without containerd: it has no
// address, so the server sends its events nowhere. The server runs in cgroup.
func (s *Store) startServer(ctx context.Context, bundle, uuid, stage1, cgroup string) error {
	params := &bootapi.BootstrapParams{InstanceID: uuid, Namespace: Namespace, SocketDir: proto.String(socketDir), LogLevel: bootapi.LogLevel_LOG_LEVEL_INFO}
	if err := params.AddExtension(&options.Options{Stage1: stage1, ShimCgroup: cgroup}); err != nil {
		return err
	}
	stdin, err := proto.Marshal(params)
	if err == nil {
		err = os.MkdirAll(socketDir, dirMode)
	}
	if err != nil {
		return err
	}
	stdout, err := s.shim(ctx, bundle, uuid, stdin, "start")
	if err != nil {
		return fmt.Errorf("start the server of pod %s: %w", uuid, err)
	}
	var answer bootapi.BootstrapResult
	if err := proto.Unmarshal(stdout, &answer); err != nil || answer.GetAddress() != addressOf(uuid) {
		return fmt.Errorf("start the server of pod %s: its answer is %q, and not %s: is %s of another release? %w", uuid, stdout, addressOf(uuid), s.Shim, err)
	}
	return nil
}

// addressOf returns the address of a pod's server. `start` computes it in the same way
// (docs/requirements.md#B31), so that it is on disk before there is a server.
func addressOf(uuid string) string {
	name := sha256.Sum256([]byte(filepath.Join("", Namespace, uuid)))
	return fmt.Sprintf("%s%s/%x", addressPrefix, socketDir, name)
}

// collect removes what a server has left of a container, from disk alone. A bundle without
// rkt.json has nothing left.
func (s *Store) collect(ctx context.Context, bundle, id string) error {
	if _, err := os.Lstat(filepath.Join(bundle, bundleFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := s.shim(ctx, bundle, id, nil, "delete"); err != nil {
		return fmt.Errorf("delete %s from disk: %w", id, err)
	}
	return nil
}

// shim executes an action of the shim in a bundle.
func (s *Store) shim(ctx context.Context, bundle, id string, stdin []byte, action string) ([]byte, error) {
	program := s.Shim
	if program == "" {
		var err error
		if program, err = FindShim(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, program, "-namespace", Namespace, "-id", id, "-address", "", "-bundle", bundle, action)
	cmd.Dir = bundle
	cmd.Env = s.Env
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			err = errors.New(text)
		}
		return nil, err
	}
	return stdout.Bytes(), nil
}

// writeAddress writes the server's address into a bundle.
func writeAddress(bundle, address string) error {
	return writeRecord(filepath.Join(bundle, bootstrapFile), map[string]any{"version": 3, "address": address, "protocol": "ttrpc"})
}

// errNoServer says that a pod's server is not running.
var errNoServer = errors.New("its server is not running")

// server is a connection to the server of a pod.
type server struct {
	task.TTRPCTaskService
	client *ttrpc.Client
}

// dial connects to the server of a pod. The error unwraps to errNoServer if no server listens.
// A socket of another user is not the server's.
func dial(ctx context.Context, address string) (*server, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(address, addressPrefix))
	switch {
	case address == "", errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil, errNoServer
	case err != nil:
		return nil, err
	}
	c := ttrpc.NewClient(conn)
	return &server{task.NewTTRPCTaskClient(c), c}, nil
}

func (s *server) close() { _ = s.client.Close() }

// resize gives the terminal of an app, or of an exec in it, the sizes that arrive until ctx ends.
func (s *server) resize(ctx context.Context, app, exec string, sizes <-chan Size) {
	for {
		select {
		case z := <-sizes:
			_, _ = s.ResizePty(ctx, &task.ResizePtyRequest{ID: app, ExecID: exec, Width: z.Width, Height: z.Height})
		case <-ctx.Done():
			return
		}
	}
}

// sandbox calls a method of the Sandbox service.
func (s *server) sandbox(ctx context.Context, method string, request, response any) error {
	return native(wire.Call(ctx, s.client, sandbox.Service, method, request, response))
}

// native turns the error of a call into one of errdefs', with the server's text. If the
// connection has ended with the call, the error unwraps to errNoServer.
func native(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ttrpc.ErrClosed):
		return fmt.Errorf("%w any more", errNoServer)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return errgrpc.ToNative(err)
}

// gone reports whether an error says that the server, or what it was asked for, is not there.
func gone(err error) bool { return errors.Is(err, errNoServer) || errdefs.IsNotFound(err) }
