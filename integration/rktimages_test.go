package integration

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
)

// ofRkt runs a case with some of rkt's own stage1 images, as its makefiles compose them.
// What these do not isolate is excused.
func ofRkt(t *testing.T, flavors []string, test func(t *testing.T, n *node)) {
	t.Helper()
	aside(t, func(t *testing.T, c *column) {
		images, err := binaries.RktStage1s(t.Context(), os.Stderr)
		if errors.Is(err, exec.ErrNotFound) {
			t.Skipf("rkt's own images cannot be built here: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		n := c.asideNode(t)
		for _, flavor := range flavors {
			t.Run(flavor, func(t *testing.T) {
				if _, err := exec.LookPath("systemd-nspawn"); flavor != "fly" && err != nil {
					t.Skipf("the flavor %s runs systemd-nspawn and systemd of the machine, of Debian's systemd-container, or copies of these: %v", flavor, err)
				}
				own, col := *n, *n.column
				own.column, own.t = &col, t
				own.isOfRkts(flavor, filepath.Join(images, flavor))
				before := hostsTrees(t)
				test(t, &own)
				own.expectNothingLeft(t)
				before.expect(t)
				n.serial = own.serial
			})
		}
	})
}

// isOfRkts gives the node's containers one of rkt's images.
func (n *node) isOfRkts(flavor, image string) {
	n.t.Helper()
	stage1 := "rkts" + flavor
	link := filepath.Join(suite.shims, "containerd-shim-rkt-"+stage1+"-v1")
	if err := os.Symlink("containerd-shim-rkt-v1", link); err != nil && !os.IsExist(err) {
		n.t.Fatal(err)
	}
	n.runtime = "io.containerd.rkt-" + stage1 + ".v1"
	n.says("[stage1.%s]\npath = %q\naccept = [\"appc\", \"/process/capabilities\", \"/linux/seccomp\", \"/process/noNewPrivileges\"]\n", stage1, image)
}

// trees are the lines of a mount table that are of the trees that every machine has.
type trees string

// hostsTrees are those where containerd is, with whom they are shared. Cgroups are
// mounted by others, too.
func hostsTrees(t *testing.T) trees {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		at := strings.Fields(line)[4] + "/"
		if at == "//" || strings.HasPrefix(at, "/dev/") || strings.HasPrefix(at, "/proc/") ||
			strings.HasPrefix(at, "/sys/") && !strings.HasPrefix(at, "/sys/fs/cgroup/") {
			all.WriteString(line)
		}
	}
	return trees(all.String())
}

// expect tells whether they are as before.
func (before trees) expect(t *testing.T) {
	t.Helper()
	if now := hostsTrees(t); now != before {
		t.Errorf("the mounts where containerd is were\n%s\nand are\n%s", before, now)
	}
}

// aTask creates a task in an image of rkt's.
func (n *node) aTask(t *testing.T, io cio.Creator, args []string, opts ...oci.SpecOpts) client.Task {
	t.Helper()
	return n.newTask(t, n.containerOf(t, n.client, n.image(t, n.client), n.runtime, n.id(), args, opts...), io)
}

// servesEveryCall calls what a client can ask of a running container.
func (n *node) servesEveryCall(t *testing.T) {
	t.Helper()
	ctx := n.context(t)
	task := n.aTask(t, cio.NullIO, []string{"testprog", "sleep", "1000"})
	expectStatus(t, ctx, task, client.Created)
	exited := n.wait(t, task)
	if err := task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	expectStatus(t, ctx, task, client.Running)
	if pids, err := task.Pids(ctx); err != nil || len(pids) == 0 {
		t.Errorf("pids: %v, %v", pids, err)
	}
	if err := task.Pause(ctx); err != nil {
		t.Errorf("pause: %v", err)
	}
	expectStatus(t, ctx, task, client.Paused)
	if err := task.Resume(ctx); err != nil {
		t.Errorf("resume: %v", err)
	}
	limit := int64(64 << 20)
	if err := task.Update(ctx, client.WithResources(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &limit}})); err != nil {
		t.Errorf("update: %v", err)
	}
	memoryLimit.expect(t, task, "67108864")
	if m, err := task.Metrics(ctx); err != nil || m.Data == nil {
		t.Errorf("metrics: %v", err)
	}
	if _, err := task.Checkpoint(ctx); !errdefs.IsNotImplemented(err) {
		t.Errorf("checkpoint: %v, want that it is not implemented", err)
	}
	n.execsIn(t, task)
	kill(t, ctx, task, syscall.SIGTERM)
	expectExit(t, exited, 128+uint32(syscall.SIGTERM))
	deleteTask(t, ctx, task)
}

// execsIn executes something in a task, with its exit code, and something that is
// killed.
func (n *node) execsIn(t *testing.T, task client.Task) {
	t.Helper()
	ctx := n.context(t)
	var out bytes.Buffer
	p, err := task.Exec(ctx, "says", process(t, ctx, task, "sh", "-c", "echo said; exit 7"), cio.NewCreator(cio.WithStreams(nil, &out, nil), cio.WithFIFODir(n.fifoDir(nil))))
	if err != nil {
		t.Fatal(err)
	}
	exited := n.wait(t, p)
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	expectExit(t, exited, 7)
	deleteTask(t, ctx, p)
	if out.String() != "said\n" {
		t.Errorf("the exec said %q", out.String())
	}
	p, err = task.Exec(ctx, "killed", process(t, ctx, task, "sh", "-c", "exec sleep 4712"), cio.NullIO)
	if err != nil {
		t.Fatal(err)
	}
	exited = n.wait(t, p)
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the exec runs", func() (bool, string) { return running("sleep\x004712"), "" })
	kill(t, ctx, p, syscall.SIGKILL)
	expectExit(t, exited, 128+uint32(syscall.SIGKILL))
	deleteTask(t, ctx, p)
	eventually(t, "the exec has ended", func() (bool, string) { return !running("sleep\x004712"), "" })
}

// survivesItsShim kills the shim of a running container: `delete` leaves nothing.
func (n *node) survivesItsShim(t *testing.T) {
	t.Helper()
	id := n.id()
	n.run(t, []string{"-d"}, id, "sleep", "1000").must(t)
	if err := syscall.Kill(n.shim(t, id), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the task is gone", func() (bool, string) {
		r := n.ctr(t, "task", "ls")
		return !strings.Contains(r.stdout, id+" ") || strings.Contains(r.stdout, "STOPPED"), r.stdout
	})
	n.ctr(t, "task", "delete", "--force", id)
	n.ctr(t, "container", "delete", id).must(t)
}

// hasTerminals runs something with a terminal of a certain size.
func (n *node) hasTerminals(t *testing.T) {
	t.Helper()
	ctx := n.context(t)
	var out bytes.Buffer
	task := n.aTask(t, cio.NewCreator(cio.WithStreams(nil, &out, nil), cio.WithTerminal, cio.WithFIFODir(n.fifoDir(nil))),
		[]string{"sh", "-c", "test -t 1 && stty size; exit 5"}, oci.WithTTY, oci.WithTTYSize(97, 31))
	exited := n.wait(t, task)
	if err := task.Start(ctx); err != nil {
		t.Fatal(err)
	}
	expectExit(t, exited, 5)
	deleteTask(t, ctx, task)
	if !strings.Contains(out.String(), "31 97") {
		t.Errorf("output %q; want a terminal of 31 lines and 97 columns", out.String())
	}
}
