package manager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// daemon calls the shim as containerd does, as each of its versions did.
type daemon struct {
	t         *testing.T
	address   string // unique, and so is every socket derived from it
	state     string // bundles are below it
	socketDir string // for the protobuf form; removed with the test
	argv0     string
	env       []string
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: `start` refuses to work without")
	}
	state := t.TempDir()
	// Short: t.TempDir is longer than a socket directory may be.
	socketDir, err := os.MkdirTemp("/tmp", "rkt-s-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(socketDir) })
	return &daemon{
		t:         t,
		address:   filepath.Join(state, "containerd.sock"),
		state:     state,
		socketDir: filepath.Join(socketDir, "s"),
		argv0:     "/usr/bin/containerd-shim-rkt-v1",
	}
}

// bundle makes a bundle whose config.json has the given annotations; without any
// there is no config.json.
func (d *daemon) bundle(namespace, id string, annotations map[string]string) string {
	d.t.Helper()
	dir := filepath.Join(d.state, namespace, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		d.t.Fatal(err)
	}
	if annotations != nil {
		spec, err := json.Marshal(map[string]any{"ociVersion": "1.2.0", "annotations": annotations})
		if err != nil {
			d.t.Fatal(err)
		}
		write(d.t, filepath.Join(dir, "config.json"), spec)
	}
	return dir
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

type output struct {
	stdout, stderr []byte
	err            error
}

// call executes the shim once. A version of containerd decides about env.
func (d *daemon) call(bundle, namespace, id string, stdin []byte, env []string, args ...string) output {
	d.t.Helper()
	return d.callStarted(func(*os.Process) {}, bundle, namespace, id, stdin, env, args...)
}

// callStarted is call, and passes the process to a function.
func (d *daemon) callStarted(started func(*os.Process), bundle, namespace, id string, stdin []byte, env []string, args ...string) output {
	d.t.Helper()
	self, err := os.Executable()
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = append([]string{d.argv0, "-namespace", namespace, "-address", d.address,
		"-publish-binary", "/usr/bin/containerd", "-id", id}, args...)
	cmd.Dir = bundle
	cmd.Env = append([]string{asShim + "=1", asEarly + "=first", "GORACE=atexit_sleep_ms=0", "PATH=" + os.Getenv("PATH"), "GOMAXPROCS=2",
		"TTRPC_ADDRESS=" + d.address + ".ttrpc"}, env...)
	cmd.Env = append(cmd.Env, d.env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Start(); err == nil {
		started(cmd.Process)
		err = cmd.Wait()
	}
	return output{stdout.Bytes(), stderr.Bytes(), err}
}

// environments of containerd's versions, beside TTRPC_ADDRESS.
func env17(namespace string) []string {
	return []string{"MAX_SHIM_VERSION=2", "NAMESPACE=" + namespace}
}

func (d *daemon) params(namespace, id string) *bootapi.BootstrapParams {
	return &bootapi.BootstrapParams{
		InstanceID:             id,
		Namespace:              namespace,
		ContainerdVersion:      "2.4.2",
		ContainerdGrpcAddress:  d.address,
		ContainerdTtrpcAddress: d.address + ".ttrpc",
		ContainerdBinary:       "/usr/bin/containerd",
		SocketDir:              &d.socketDir,
	}
}

// start24 is `start` as containerd 2.4 calls it. It returns the address.
func (d *daemon) start24(namespace, id string, annotations map[string]string) string {
	d.t.Helper()
	bundle := d.bundle(namespace, id, annotations)
	return d.startWith(bundle, d.params(namespace, id))
}

func (d *daemon) startWith(bundle string, p *bootapi.BootstrapParams, args ...string) string {
	d.t.Helper()
	stdin, err := proto.Marshal(p)
	if err != nil {
		d.t.Fatal(err)
	}
	out := d.call(bundle, p.Namespace, p.InstanceID, stdin, env17(p.Namespace), append(args, "start")...)
	var result bootapi.BootstrapResult
	d.succeeded(out)
	if err := proto.Unmarshal(out.stdout, &result); err != nil {
		d.t.Fatalf("start answered %q: %v", out.stdout, err)
	}
	if result.Version != 3 || result.Protocol != "ttrpc" {
		d.t.Fatalf("start answered version %d, protocol %q", result.Version, result.Protocol)
	}
	stored, err := json.Marshal(&result)
	if err != nil {
		d.t.Fatal(err)
	}
	write(d.t, filepath.Join(bundle, "bootstrap.json"), stored)
	d.killLater(result.Address)
	return result.Address
}

// succeeded checks requirements.md#B12: one byte on stderr is part of the answer for
// containerd.
func (d *daemon) succeeded(out output) {
	d.t.Helper()
	if out.err != nil || len(out.stderr) > 0 {
		d.t.Fatalf("the call ended with %v, stderr %q", out.err, out.stderr)
	}
}

// killLater kills the server at the end of the test.
func (d *daemon) killLater(address string) {
	d.t.Helper()
	pid := connect(d.t, address).shimPID()
	d.t.Cleanup(func() {
		unix.Kill(pid, unix.SIGKILL)
		os.Remove(early.PathOf(address))
	})
}

type client struct {
	t    *testing.T
	rpc  *ttrpc.Client
	task task.TTRPCTaskService
}

func connect(t *testing.T, address string) *client {
	t.Helper()
	conn, err := net.Dial("unix", early.PathOf(address))
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, rpc: ttrpc.NewClient(conn)}
	c.task = task.NewTTRPCTaskClient(c.rpc)
	t.Cleanup(func() { c.rpc.Close() })
	return c
}

func (c *client) connect() *task.ConnectResponse {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := c.task.Connect(ctx, &task.ConnectRequest{})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *client) shimPID() int { c.t.Helper(); return int(c.connect().ShimPid) }

func (c *client) create(id string) {
	c.t.Helper()
	if _, err := c.task.Create(c.t.Context(), &task.CreateTaskRequest{ID: id}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) has(id string) bool {
	_, err := c.task.State(c.t.Context(), &task.StateRequest{ID: id})
	return err == nil
}

// ended waits for the end of all threads of a process that is not our child: as long as one
// of them exists, the process's sockets accept connections.
func ended(t *testing.T, pid int) {
	t.Helper()
	p, err := proc.Open(pid, 0)
	if errors.Is(err, proc.ErrGone) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	if err := p.Wait(ctx); err != nil {
		t.Fatalf("process %d: %v", pid, err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
