package integration

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// client16 is the program of containerd 1.6's Go client, built once.
var client16 = sync.OnceValues(func() (string, error) {
	return binaries.Client16(context.Background(), suite.dir)
})

// runBy16 runs a program in a container with a client of containerd 1.6 and options. Its
// messages, and the Any around them, are gogo's.
func (c *column) runBy16(t *testing.T, options, as string, args ...string) result {
	t.Helper()
	client, err := client16()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait.Patience)
	defer cancel()
	all := append([]string{
		"-address", c.daemon.Address(), "-namespace", c.daemon.Namespace(), "-runtime", c.runtime, "-image", image.BusyboxName,
		"-id", c.id(), "-fifo-dir", fifoDir(c.daemon.Dir()), "-options", options, "-as", as,
	}, args...)
	cmd := exec.CommandContext(ctx, client, all...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code is enough
	return result{args: append([]string{filepath.Base(client)}, all...), stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// requirements.md#O1
func TestAClientOfContainerd16IsUnderstood(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		owner := []string{"stat", "-L", "-c", "%u:%g", "/proc/self/fd/1"}
		c.runBy16(t, "none", "runtime", owner...).must(t).mustSay(t, "0:0\n")
		for _, as := range []string{"runtime", "task", "google"} {
			// The user is that of the process, whoever owned the pipe. The group is that of the
			// option.
			c.mustSayOrRefuse(t, c.runBy16(t, "runc", as, owner...), "0:50\n")
		}
		c.runBy16(t, "config", "runtime", "testprog", "exit", "42").mustExit(t, 42)
	})
}

// requirements.md#O1
func TestOptionsOfAnUnknownTypeAreRefusedByName(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		r := c.runBy16(t, "other", "runtime", "true")
		if r.code != 125 || !strings.Contains(r.stderr, "containerd.linux.runc.CreateOptions") {
			t.Errorf("code %d, %q", r.code, r.stderr)
		}
	})
}

// The options of a handler in containerd's configuration arrive as TOML. A handler that was
// runc's before still has runc's options.
// requirements.md#O1
func TestAConfigurationOfRuncsOptionsIsTaken(t *testing.T) {
	eachReleaseOfOurs(t, func(t *testing.T, c *column) {
		file := filepath.Join(t.TempDir(), "options.toml")
		write(t, file, "BinaryName = '/no/such/runc'\nSystemdCgroup = true\nIoGid = 50\nNoNewKeyring = true\n")
		flags := []string{"--rm", "--runtime-config-path", file}
		r := c.run(t, flags, c.id(), "sh", "-c", "stat -L -c %g /proc/self/fd/1; testprog session-keyring")
		c.mustSayOrRefuse(t, r, fmt.Sprintf("50\n%d\n", sessionKeyring(t)))

		flags[2] = "/no/such/file"
		r = c.run(t, flags, c.id(), "true")
		if r.code == 0 || !strings.Contains(r.stderr, "/no/such/file: no such file or directory") {
			t.Errorf("code %d, %q", r.code, r.stderr)
		}
	})
}

// refusedKeyring is nspawn's error for NoNewKeyring.
const refusedKeyring = "options.noNewKeyring is not supported"

// mustSayOrRefuse is mustSay for a run with NoNewKeyring, which nspawn must refuse.
func (c *column) mustSayOrRefuse(t *testing.T, r result, words string) {
	t.Helper()
	if c.name != "nspawn" {
		r.must(t).mustSay(t, words)
	} else if r.code == 0 || !strings.Contains(r.stderr, refusedKeyring) {
		t.Errorf("code %d, %q, want %q in it", r.code, r.stderr, refusedKeyring)
	}
}

// sessionKeyring returns the session keyring that the daemon and its shims inherit from this
// process.
func sessionKeyring(t *testing.T) int {
	t.Helper()
	id, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// requirements.md#O1
func TestTheOptionsOfATaskReachTheStage1(t *testing.T) {
	eachRuntime(t, func(t *testing.T, c *column) {
		for _, opts := range [][]containerd.NewTaskOpts{nil, {containerd.WithNoNewKeyring, containerd.WithNoPivotRoot}} {
			var out streams
			container := c.container(t, []string{"testprog", "session-keyring"})
			task, err := container.NewTask(c.context(t), out.creator(c, nil), opts...)
			if c.name == "nspawn" && opts != nil {
				if err == nil || !strings.Contains(err.Error(), refusedKeyring) {
					t.Errorf("%v, want %q in it", err, refusedKeyring)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			exited := c.wait(t, task)
			if err := task.Start(c.context(t)); err != nil {
				t.Fatal(err)
			}
			expectExit(t, exited, 0)
			deleteTask(t, c.context(t), task)
			ours := fmt.Sprintln(sessionKeyring(t))
			if said := out.stdout.String(); said == ours != (opts != nil) || said == "" {
				t.Errorf("with %d options the session keyring is %q, ours is %q", len(opts), said, ours)
			}
		}
	})
}

// withOptions sets a container's runtime options to an encoded message.
func withOptions(runtime, name string, value []byte) containerd.NewContainerOpts {
	return containerd.WithRuntime(runtime, &anypb.Any{TypeUrl: name, Value: value})
}

// requirements.md#O1
func TestOurOwnOptionsChooseTheStage1(t *testing.T) {
	eachOf(t, []string{"native"}, func(t *testing.T, c *column) {
		ctx := c.context(t)
		const stage1 = 1 // the field's number
		asks := func(name string) containerd.NewContainerOpts {
			return withOptions(c.runtime, "containerd.rkt.v1.Options", protowire.AppendString(protowire.AppendTag(nil, stage1, protowire.BytesType), name))
		}
		group := group("group-" + c.id())
		container := func(opt containerd.NewContainerOpts, more ...oci.SpecOpts) containerd.Container {
			id, img := c.id(), c.image(t, c.client)
			spec := append([]oci.SpecOpts{oci.WithImageConfig(img), oci.WithProcessArgs("testprog", "sleep", "1000")}, more...)
			container, err := c.client.NewContainer(ctx, id, containerd.WithNewSnapshot(id, img), containerd.WithNewSpec(spec...), opt)
			if err != nil {
				t.Fatal(err)
			}
			return container
		}
		task := c.newTask(t, container(asks("oci"), group), cio.NullIO)
		if err := task.Start(ctx); err != nil {
			t.Fatal(err)
		}
		spec, err := task.Spec(ctx)
		if err != nil {
			t.Fatal(err)
		}
		dir, _ := c.pod(t, spec.Annotations[groupAnnotation])
		if record := read(t, filepath.Join(dir, "shim.json")); !strings.Contains(record, `"name":"oci"`) {
			t.Errorf("the pod is %s", record)
		}
		if _, err := container(asks("native"), group).NewTask(ctx, cio.NullIO); err == nil || !strings.Contains(err.Error(), "the stage1 native, and the pod has oci") {
			t.Errorf("another stage1 in the same pod: %v", err)
		}
		if _, err := container(asks("absent")).NewTask(ctx, cio.NullIO); err == nil || !strings.Contains(err.Error(), "absent") {
			t.Errorf("a stage1 that is not there: %v", err)
		}
	})
}
