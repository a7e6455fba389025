package hosts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
)

const imageName = "images.test/busybox:latest"

// column is a runtime.
type column struct{ name, runtime string }

const runc = "runc"

func columns() []column {
	all := []column{
		{"native", "io.containerd.rkt.v1"},
		{"oci", "io.containerd.rkt-oci.v1"},
		{"nspawn", "io.containerd.rkt-nspawn.v1"},
	}
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		all = all[:2]
	}
	if full {
		all = append(all, column{runc, "io.containerd.runc.v2"})
	}
	return all
}

// runcPath returns the machine's runc.
func runcPath() (string, error) {
	path, err := exec.LookPath("runc")
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// node is a containerd in a state.
type node struct {
	*daemon.Daemon
	client *containerd.Client
	data   string // RKT_DATA_DIR
	spec   oci.SpecOpts
	not    string
}

// started is the number of nodes.
var started atomic.Int32

// start starts a containerd in the state. It ends with the test.
func (s state) start(t *testing.T) *node {
	t.Helper()
	name := fmt.Sprint(started.Add(1))
	dir := filepath.Join(nodesDir, name)
	n := &node{data: filepath.Join(dir, "rkt"), spec: s.spec, not: s.not}
	if err := os.MkdirAll(n.data, 0o755); err != nil {
		t.Fatal(err)
	}
	opts := daemon.Options{
		Dir: dir, Programs: programsDir, Shims: []string{shimsDir}, Namespace: "hosts-" + name, LogLevel: "info",
		Env:     append([]string{"RKT_DATA_DIR=" + n.data}, s.env...),
		Wrapper: s.wrapper(n.data),
	}
	var err error
	if n.Daemon, err = daemon.Start(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.killAll(t)
		if t.Failed() {
			t.Logf("containerd's log ends with:\n%s", n.LogTail(20))
		}
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		if err := n.scope().Forget(); err != nil {
			t.Error(err)
		}
	})
	if out, err := n.Ctr(t.Context(), "image", "import", archive).CombinedOutput(); err != nil {
		t.Fatalf("import the image: %v: %s", err, out)
	}
	if n.client, err = n.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.client.Close() })
	return n
}

// wrapper returns the command that makes the state and executes containerd.
func (s state) wrapper(data string) []string {
	if s.world != "" {
		return []string{"sh", "-c", s.world, "sh"}
	}
	command := []string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", "DATA=" + data + "\n" + s.prepare + "\nexec \"$@\"", "sh"}
	if s.denied.name != "" {
		command = append(command, s.denied.command()...)
	}
	return command
}

// scope describes all that containers may leave. The data directory may be on a mount of the
// daemon's own.
func (n *node) scope() leaks.Scope {
	s := leaks.Scope{Dir: n.Dir() + "/", Namespace: n.Namespace(), Except: []int{n.PID(), os.Getpid()}, Empty: []string{
		n.Bundle(""), filepath.Join(n.Dir(), "fifo"),
	}}
	pids, _ := leaks.PIDs()
	for _, pid := range pids { // containerd may be a child of its wrapper
		if strings.HasPrefix(leaks.CommandLine(pid), programsDir+"/containerd ") {
			s.Except = append(s.Except, pid)
		}
	}
	root := fmt.Sprintf("/proc/%d/root", n.PID())
	for _, state := range []string{"embryo", "prepare", "prepared", "run", "exited-garbage", "garbage"} {
		s.Empty = append(s.Empty, filepath.Join(root, n.data, "pods", state))
	}
	return s
}

// remains lists what the containers have left.
func (n *node) remains() ([]string, error) {
	return n.scope().Remains()
}

// killAll kills the processes that containers have left.
func (n *node) killAll(t *testing.T) {
	left, err := n.scope().Processes()
	if err != nil {
		t.Error(err)
	}
	for _, pid := range left {
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended
		}
	}
}

// context returns a context that bounds a step.
func (n *node) context(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), limit)
}
