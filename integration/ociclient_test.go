package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// ociClient is the command line of package ocisuite/client, for one container.
type ociClient struct {
	program, id string
	env         []string
}

func newOCIClient(t *testing.T, c *column) ociClient {
	t.Helper()
	program, err := binaries.Program(c.context(t), t.TempDir(), "ocisuite/client")
	if err != nil {
		t.Fatal(err)
	}
	return ociClient{program, c.id(), append(os.Environ(),
		"OCI_ADDRESS="+c.daemon.Address(), "OCI_NAMESPACE="+c.daemon.Namespace(), "OCI_RUNTIME="+c.runtime)}
}

// run runs a verb with its arguments.
func (o ociClient) run(args ...string) (out string, code int) {
	cmd := exec.Command(o.program, args...)
	cmd.Env = o.env
	b, _ := cmd.CombinedOutput() // the code says whether it failed
	return string(b), cmd.ProcessState.ExitCode()
}

func (o ociClient) must(t *testing.T, args ...string) {
	t.Helper()
	if out, code := o.run(args...); code != 0 {
		t.Fatalf("%q: code %d: %s", args, code, out)
	}
}

// state returns the container's state; its status is empty if there is no such container.
func (o ociClient) state(t *testing.T) specs.State {
	t.Helper()
	var s specs.State
	out, code := o.run("state", o.id)
	if code == 0 {
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// clientBundle makes a bundle with the test program as its root, and files for exec and update.
func clientBundle(t *testing.T, c *column) string {
	t.Helper()
	dir := t.TempDir()
	process := func(args ...string) *specs.Process {
		return &specs.Process{Args: append([]string{"/testprog"}, args...), Cwd: "/", NoNewPrivileges: true}
	}
	limit := int64(8 << 20)
	for name, value := range map[string]any{
		"config.json": specs.Spec{
			Version: "1.0.2", Process: process("sleep", "1000"), Root: &specs.Root{Path: "root"}, Annotations: map[string]string{"a": "b"},
			Mounts: []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
			Linux: &specs.Linux{CgroupsPath: "/" + c.daemon.Namespace() + "/" + filepath.Base(dir),
				Namespaces: []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}}},
		},
		"process.json":   process("exit", "7"),
		"resources.json": specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}},
	} {
		b, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "root/proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", suite.testprog, filepath.Join(dir, "root/testprog")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func TestTheClientOfTheOCISuiteHasTheVerbsOfARuntime(t *testing.T) {
	eachOf(t, []string{"native", "runc"}, func(t *testing.T, c *column) {
		o, dir := newOCIClient(t, c), clientBundle(t, c)
		expect := func(status specs.ContainerState) specs.State {
			t.Helper()
			s := o.state(t)
			if s.Status != status {
				t.Errorf("the status is %q, want %q", s.Status, status)
			}
			return s
		}
		o.must(t, "create", "--bundle", dir, "--pid-file", dir+"/pid", o.id)
		if s := expect(specs.StateCreated); s.Bundle != dir || s.ID != o.id || s.Annotations["a"] != "b" || s.Pid == 0 {
			t.Errorf("%+v", s)
		}
		if _, code := o.run("delete", o.id); code == 0 {
			t.Error("a created container was deleted")
		}
		o.must(t, "start", o.id)
		pid := expect(specs.StateRunning).Pid
		if out, code := o.run("exec", "--process", dir+"/process.json", o.id); code != 7 {
			t.Errorf("exec: code %d, want 7: %s", code, out)
		}
		o.must(t, "update", "--resources", dir+"/resources.json", o.id)
		if got := memoryLimit.read(t, uint32(pid)); got != "8388608" {
			t.Errorf("the limit of memory is %s", got)
		}
		o.must(t, "kill", o.id, "KILL")
		wait.Until(t, "the container is stopped", func() bool { return o.state(t).Status == specs.StateStopped })
		if _, code := o.run("kill", o.id); code == 0 {
			t.Error("a stopped container was killed")
		}
		o.must(t, "delete", o.id)
		expect("")
	})
}
