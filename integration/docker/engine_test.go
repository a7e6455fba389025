package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// patience is the time limit for things that should happen at once. A machine boots first, by emulation.
var patience = func() time.Duration {
	if machines.Only() {
		return 10 * wait.Patience
	}
	return 2 * wait.Patience
}()

// stage1s are those of this run.
func stage1s() []string {
	if machines.Only() {
		return []string{"kvm"}
	}
	return []string{"native", "oci"}
}

// engine is a dockerd, with a containerd of its own, whose default runtime has one
// stage1.
type engine struct {
	stage1     string
	dir        string
	containerd *daemon.Daemon
	dockerd    *exec.Cmd
	ended      chan struct{}
}

// each runs a test with every stage1, one after the other, because the bridge has a constant
// name.
func each(t *testing.T, test func(t *testing.T, e *engine)) {
	if why := missing(); why != "" {
		t.Skip(why)
	}
	for _, stage1 := range stage1s() {
		t.Run(stage1, func(t *testing.T) {
			e := start(t, stage1)
			test(t, e)
			e.expectNothingLeft(t)
		})
	}
}

// configuration is the daemon.json of docs/clients.md. Debian's runc is older than 1.2, which
// is the first runc with time namespaces.
func configuration(stage1 string) map[string]any {
	return map[string]any{
		"runtimes": map[string]any{
			"rkt":     map[string]any{"runtimeType": "io.containerd.rkt.v1"},
			"rkt-oci": map[string]any{"runtimeType": "io.containerd.rkt-oci.v1"},
			"rkt-kvm": map[string]any{"runtimeType": machines.Runtime},
		},
		"default-runtime": map[string]string{"native": "rkt", "oci": "rkt-oci", "kvm": "rkt-kvm"}[stage1],
		"features":        map[string]bool{"time-namespaces": stage1 == "native"},
		"live-restore":    true,
		"iptables":        false, // no NAT: there is no network outside
		"ip6tables":       false,
		"userland-proxy":  false,
	}
}

func start(t *testing.T, stage1 string) *engine {
	t.Helper()
	e := &engine{stage1: stage1, dir: filepath.Join("/run", stage1)}
	env := []string{"RKT_DATA_DIR=" + filepath.Join("/var/lib", "rkt-"+stage1)}
	if e.ofMachines() {
		env = append(env, "RKT_CONFIG="+filepath.Join(machinesDir, machines.File))
	}
	var err error
	if e.containerd, err = daemon.Start(t.Context(), daemon.Options{
		Dir: e.dir, Programs: programsDir, Shims: []string{shimsDir}, Env: env, Namespace: "moby", LogLevel: "info",
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log ends with:\n%s", e.containerd.LogTail(20))
		}
		if err := e.containerd.Stop(); err != nil {
			t.Error(err)
		}
	})
	text, err := json.Marshal(configuration(stage1))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(e.dir, "daemon.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	e.up(t)
	t.Cleanup(func() { e.down(syscall.SIGTERM) })
	e.must(t, "load", "--input", archive)
	return e
}

// up starts the daemon, and waits until it answers.
func (e *engine) up(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "dockerd.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	e.dockerd = exec.Command(filepath.Join(programsDir, "dockerd"),
		"--config-file", filepath.Join(e.dir, "daemon.json"), "--containerd", e.containerd.Address(), "--host", "unix://"+e.socket(),
		"--data-root", filepath.Join("/var/lib", "docker-"+e.stage1), "--exec-root", filepath.Join("/run", "docker-"+e.stage1), "--pidfile", filepath.Join(e.dir, "docker.pid"))
	// Debian's client is an old one.
	e.dockerd.Env = append(os.Environ(), "DOCKER_MIN_API_VERSION=1.40")
	e.dockerd.Stdout, e.dockerd.Stderr = log, log
	if err := e.dockerd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	e.ended = ended
	go func() { defer close(ended); _ = e.dockerd.Wait() }()
	if !wait.ObserveWithin(t, patience, "dockerd answers", func() (bool, string) {
		r := e.call(t, "", "version")
		return r.code == 0, r.stderr
	}) {
		t.FailNow()
	}
}

// down ends the daemon, and leaves its containers running.
func (e *engine) down(signal syscall.Signal) {
	_ = e.dockerd.Process.Signal(signal)
	<-e.ended
}

func (e *engine) socket() string { return filepath.Join(e.dir, "docker.sock") }

// result is the result of a call of docker.
type result struct {
	stdout, stderr string
	code           int
}

// call calls docker and returns the result, also of a failed call.
func (e *engine) call(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programsDir, "docker"), append([]string{"--host", "unix://" + e.socket()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("docker %s: %v", strings.Join(args, " "), err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// must calls docker, expects success and returns its output.
func (e *engine) must(t *testing.T, args ...string) string {
	t.Helper()
	r := e.call(t, "", args...)
	if r.code != 0 {
		t.Fatalf("docker %s: exit code %d\nstdout: %s\nstderr: %s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return strings.TrimSpace(r.stdout)
}

// run calls `docker run` with flags, before the image, and a program.
func (e *engine) run(t *testing.T, flags []string, program ...string) result {
	t.Helper()
	return e.call(t, "", append(append(append([]string{"run"}, flags...), image.BusyboxName), program...)...)
}

// ofMachines reports whether each container is a machine.
func (e *engine) ofMachines() bool { return e.stage1 == "kvm" }

// refuses expects that a container with these flags is refused with some words.
func (e *engine) refuses(t *testing.T, words string, flags ...string) {
	t.Helper()
	if r := e.run(t, append([]string{"--rm"}, flags...), "true"); r.code != 125 || !strings.Contains(r.stderr, words) {
		t.Errorf("with %q: exit code %d, want 125, and the words %q: %s", flags, r.code, words, r.stderr)
	}
}

// detached runs a container in the background.
func (e *engine) detached(t *testing.T, name string, flags []string, program ...string) {
	t.Helper()
	if r := e.run(t, append([]string{"--detach", "--name", name}, flags...), program...); r.code != 0 {
		t.Fatalf("run %s: %s", name, r.stderr)
	}
}

// inspect evaluates a template for a container.
func (e *engine) inspect(t *testing.T, name, template string) string {
	t.Helper()
	return e.must(t, "inspect", "--format", template, name)
}

// expectNothingLeft removes the containers, and then looks for remains that Docker does not
// know of.
func (e *engine) expectNothingLeft(t *testing.T) {
	t.Helper()
	for _, id := range strings.Fields(e.must(t, "ps", "--all", "--quiet")) {
		e.must(t, "rm", "--force", id)
	}
	scope := leaks.Scope{
		Dir: e.dir, Namespace: "docker", Except: []int{e.containerd.PID(), e.dockerd.Process.Pid},
		Empty: []string{e.containerd.Bundle(""), daemon.SocketDir(e.dir), filepath.Join("/var/lib", "rkt-"+e.stage1, "pods/run")},
	}
	wait.ObserveWithin(t, patience, "nothing of the containers is left", func() (bool, string) {
		left, err := scope.Remains()
		return err == nil && len(left) == 0, fmt.Sprint(strings.Join(left, "\n\t"), err)
	})
}
