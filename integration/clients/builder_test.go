package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// patience is the time limit for a build.
var patience = 4 * wait.Patience

// configuration is a buildkitd.toml with the settings of docs/clients.md.
const configuration = `root = "DIR/buildkit"
insecure-entitlements = ["network.host"]

[grpc]
  address = ["unix://DIR/buildkit.sock"]

[worker.oci]
  enabled = false

[worker.containerd]
  enabled = true
  address = "DIR/grpc.sock"
  namespace = "buildkit"
  networkMode = "host"

  [worker.containerd.runtime]
    name = "RUNTIME"
`

// builder is a buildkitd with the containerd of a node as its worker.
type builder struct {
	*node
	daemon *exec.Cmd
	ended  chan struct{}
}

// eachBuilder runs a test with a buildkitd for each runtime, and expects that at the end of its
// builds there are no containers.
func eachBuilder(t *testing.T, test func(t *testing.T, b *builder)) {
	if !full() {
		t.Skip("BuildKit's daemon takes minutes to build: make test-buildkit")
	}
	each(t, "buildkit", func(t *testing.T, n *node) {
		b := startBuilder(t, n)
		test(t, b)
		// Nothing may be left while the daemon runs. each looks again when it has ended.
		n.expectNothingLeft(t)
		b.stop(t)
	})
}

func startBuilder(t *testing.T, n *node) *builder {
	t.Helper()
	b := &builder{node: n, ended: make(chan struct{})}
	text := strings.NewReplacer("DIR", n.Dir(), "RUNTIME", n.runtime).Replace(configuration)
	file := filepath.Join(n.Dir(), "buildkitd.toml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(n.Dir(), "buildkitd.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	b.daemon = exec.Command(filepath.Join(programsDir, "buildkitd"), "--config", file)
	b.daemon.Env, b.daemon.Stdout, b.daemon.Stderr = n.env, log, log
	if err := b.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	n.except = append(n.except, b.daemon.Process.Pid)
	go func() { defer close(b.ended); _ = b.daemon.Wait() }()
	t.Cleanup(func() {
		b.kill()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("buildkitd's log: %v\n%s", err, text[max(0, len(text)-4000):])
		}
	})
	if !wait.ObserveWithin(t, patience, "buildkitd answers", func() (bool, string) {
		r := b.call(t, "debug", "workers")
		return r.code == 0, r.stderr
	}) {
		t.FailNow()
	}
	return b
}

// stop ends the daemon as a service manager would.
func (b *builder) stop(t *testing.T) {
	t.Helper()
	_ = b.daemon.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.ended:
	case <-time.After(patience):
		t.Errorf("buildkitd did not end within %s of SIGTERM", patience)
	}
}

// kill ends the daemon, if it has not ended.
func (b *builder) kill() {
	_ = b.daemon.Process.Kill()
	<-b.ended
}

// result is the result of a call of buildctl.
type result struct {
	stdout, stderr string
	code           int
}

func (b *builder) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(programsDir, "buildctl"),
		append([]string{"--addr", "unix://" + filepath.Join(b.Dir(), "buildkit.sock")}, args...)...)
}

// call calls buildctl and returns the result, also of a failed call.
func (b *builder) call(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := b.command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("buildctl %s: %v", strings.Join(args, " "), err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// buildArgs returns the arguments of buildctl for a Dockerfile in which BASE is the image.
func buildArgs(t *testing.T, dockerfile string, flags ...string) []string {
	t.Helper()
	dir := t.TempDir()
	text := strings.ReplaceAll(dockerfile, "BASE", baseImage)
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return append([]string{"build", "--progress", "plain", "--frontend", "dockerfile.v0", "--local", "context=" + dir, "--local", "dockerfile=" + dir}, flags...)
}

// build builds a Dockerfile and returns a function that reads files of the result.
func (b *builder) build(t *testing.T, dockerfile string, flags ...string) (file func(name string) string) {
	t.Helper()
	to := t.TempDir()
	r := b.call(t, buildArgs(t, dockerfile, append(flags, "--output", "type=local,dest="+to)...)...)
	if r.code != 0 {
		t.Fatalf("the build fails with %d:\n%s", r.code, r.stderr)
	}
	return func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(to, name))
		if err != nil {
			t.Errorf("%v; the build wrote:\n%s", err, r.stderr)
		}
		return string(text)
	}
}

// containers returns the number of containers that the worker has.
func (b *builder) containers(t *testing.T) (int, error) {
	t.Helper()
	out, err := b.Ctr(t.Context(), "container", "list", "--quiet").Output()
	if err != nil {
		return 0, fmt.Errorf("ctr container list: %w", err)
	}
	return len(strings.Fields(string(out))), nil
}
