package integration

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/rkt/containerd-shim-rkt-v1/integration/daemon"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// runcsShim is the runtime that runc's shim serves.
const runcsShim = "io.containerd.runc.v2"

// column is one runtime with its containerd.
type column struct {
	name    string // native, oci, nspawn, kvm, runc
	wraps   string // the OCI runtime that a column of oci has instead of Debian's runc: crun, runsc, runc-current
	runtime string // the runtime that clients pass
	release release
	daemon  *daemon.Daemon
	client  *containerd.Client
	serial  int
	byRunc  []string // ids of containers that runc's shim has made
	// blamed are remains for which a test has already failed.
	blamed []string
	// few means that the column runs only the cases of inShort and its own cases, or, if it is kvm,
	// those of ofMachines.
	few bool
}

func openColumn(ctx context.Context, name string, r release) (*column, error) {
	c := &column{name: name, release: r}
	switch name {
	case "native":
		c.runtime = "io.containerd.rkt.v1"
	case "oci":
		c.runtime = "io.containerd.rkt-oci.v1"
	case "nspawn":
		c.runtime = "io.containerd.rkt-nspawn.v1"
	case "kvm":
		c.runtime, c.few = machines.Runtime, true
	case "runc":
		c.runtime = runcsShim
	case "crun", "runsc", currentRunc:
		c.name, c.wraps, c.runtime = "oci", name, "io.containerd.rkt-"+name+".v1"
		c.few = name == "runsc" // it differs much from the others
		if err := wrap(ctx, name); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown runtime %q: native, oci, nspawn, kvm, runc, crun, runsc or %s", name, currentRunc)
	}
	programs, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	dir := name + "-" + r.name
	opts := r.options(dir, programs, fmt.Sprintf("rkt-it-%d-%s", os.Getpid(), dir))
	if name == "runsc" { // stage1/images/oci/README.md
		file := filepath.Join(suite.dir, "runsc.toml")
		if err := os.WriteFile(file, []byte(`stage1.runsc.accept = ["/linux/maskedPaths", "/linux/readonlyPaths", "/linux/seccomp", "/process/oomScoreAdj"]`+"\n"), 0o600); err != nil {
			return nil, err
		}
		opts.Env = append(opts.Env, "RKT_CONFIG="+file)
	}
	if name == "kvm" {
		file, err := machines.Configure(suite.shims, suite.dir)
		if err != nil {
			return nil, err
		}
		opts.Env = append(opts.Env, "RKT_CONFIG="+file)
	}
	if c.daemon, err = startWith(ctx, opts); err != nil {
		return nil, err
	}
	if c.client, err = c.daemon.Client(); err != nil {
		return nil, err
	}
	return c, nil
}

// startDaemon starts a containerd with the suite's shims and images. No other process may use
// its namespace, because the cgroups are named after it.
func startDaemon(ctx context.Context, name, namespace, data string) (*daemon.Daemon, error) {
	return startWith(ctx, daemon.Options{
		Dir:       filepath.Join(suite.dir, name),
		Programs:  suite.programs,
		Env:       []string{"RKT_DATA_DIR=" + data},
		Namespace: namespace,
	})
}

// startWith is startDaemon for any containerd, and for other shims if opts has any.
func startWith(ctx context.Context, opts daemon.Options) (*daemon.Daemon, error) {
	if opts.Shims == nil {
		opts.Shims = []string{suite.shims}
	}
	if err := suite.pods.Watch(dataDir(opts.Dir)); err != nil {
		return nil, err
	}
	d, err := daemon.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	if out, err := d.Ctr(ctx, "image", "import", suite.archive).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("import images: %w: %s", err, out)
	}
	return d, nil
}

func dataDir(dir string) string { return filepath.Join(dir, "rkt") }

func (c *column) close() error {
	c.client.Close()
	if err := c.daemon.Stop(); err != nil {
		return err
	}
	left, err := c.remains()
	if err != nil {
		return err
	}
	if left = c.unblamed(left); len(left) > 0 {
		return fmt.Errorf("%s: left at the end:\n\t%s", c.name, strings.Join(left, "\n\t"))
	}
	for _, path := range c.sockets() { // the shared directory is not removed with the column's own
		_ = os.Remove(path) // only the column runc has such files, and not for every path
	}
	return c.scope().Forget()
}

// scope describes everything that containers of the column can leave.
func (c *column) scope() leaks.Scope {
	d, dir := c.daemon, c.daemon.Dir()
	s := leaks.Scope{Dir: dir, Namespace: d.Namespace(), Except: []int{d.PID()}, Empty: []string{
		fifoDir(dir),
		d.Bundle(""),
		filepath.Join(dir, "root/io.containerd.runtime.v2.task", d.Namespace()),
		filepath.Join(dir, "state/io.containerd.sandbox.controller.v1.shim", d.Namespace()),
		filepath.Join(dir, "root/io.containerd.sandbox.controller.v1.shim", d.Namespace()),
		filepath.Join(dataDir(dir), "debug"),
		filepath.Join(dir, "state/io.containerd.grpc.v1.cri/sandboxes"),
		filepath.Join(dir, "root/io.containerd.grpc.v1.cri/sandboxes"),
	}}
	if c.name != "runc" { // runc's shim leaves sockets of groups behind
		s.Empty = append(s.Empty, daemon.SocketDir(dir))
		s.Absent = c.sockets()
	}
	for _, state := range []string{"embryo", "prepare", "prepared", "run", "exited-garbage", "garbage"} {
		s.Empty = append(s.Empty, filepath.Join(dataDir(dir), "pods", state))
	}
	return s
}

// remains lists what containers of the column have left.
func (c *column) remains() ([]string, error) {
	s := c.scope()
	var err error
	if s.Pods, err = suite.pods.Of(dataDir(c.daemon.Dir())); err != nil {
		return nil, err
	}
	// If its connection to runc's shim ends during the Delete of a task, containerd removes the bundle
	// while `runc delete` writes a log there. Then it leaves the rest.
	for _, id := range c.byRunc {
		_ = os.RemoveAll(c.daemon.Bundle("." + id))
	}
	return s.Remains()
}

func fifoDir(dir string) string { return filepath.Join(dir, "fifo") }

func (c *column) unblamed(found []string) []string {
	return slices.DeleteFunc(found, func(s string) bool { return slices.Contains(c.blamed, s) })
}

// expectNothingLeft fails the test for each thing that its containers have left.
func (c *column) expectNothingLeft(t *testing.T) {
	t.Helper()
	var left []string
	wait.Observe(t, "nothing of the containers is left", func() (bool, string) {
		found, err := c.remains()
		if err != nil {
			return false, err.Error()
		}
		left = c.unblamed(found)
		return len(left) == 0, strings.Join(left, "\n\t")
	})
	c.blamed = append(c.blamed, left...)
}

func ourColumns() []string { return []string{"native", "oci", "nspawn", "kvm"} }

func allColumns() []string { return append(ourColumns(), "runc") }

// usesRunc reports whether runc, or the runtime that wraps names, isolates the column's
// containers, by its own shim or by ours.
func (c *column) usesRunc() bool { return c.name == "oci" || c.name == "runc" }

// shimProgram is the name of the column's shim.
func (c *column) shimProgram() string {
	words := strings.Split(c.runtime, ".")
	return "containerd-shim-" + strings.Join(words[len(words)-2:], "-")
}

// eachRuntime runs a case once per column, and checks that it has left nothing.
func eachRuntime(t *testing.T, test func(t *testing.T, c *column)) {
	t.Helper()
	eachOf(t, allColumns(), test)
}

// eachOfOurs is eachRuntime for cases that runc's shim is known to fail.
func eachOfOurs(t *testing.T, test func(t *testing.T, c *column)) {
	t.Helper()
	eachOf(t, ourColumns(), test)
}

// eachOf runs a case in some of the columns.
func eachOf(t *testing.T, names []string, test func(t *testing.T, c *column)) {
	t.Helper()
	for _, c := range suite.columns {
		if !slices.Contains(names, c.name) || c.few && !c.runs(t, names) {
			continue
		}
		t.Run(cmp.Or(c.wraps, c.name), func(t *testing.T) {
			t.Parallel()
			c.skipWhatDiffers(t)
			t.Cleanup(func() { c.cleanUp(t) })
			test(t, c)
		})
	}
}

// runs reports whether the column runs a case: a column with few set skips most cases.
func (c *column) runs(t *testing.T, names []string) bool {
	if c.name == "kvm" {
		return slices.Contains(ofMachines(), t.Name())
	}
	return slices.Contains(inShort(), t.Name()) || len(names) == 1 && c.wraps == ""
}

// cleanUp removes containers that a test, or its failure, has left in containerd, and then
// looks for remains that containerd does not know of.
func (c *column) cleanUp(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("the daemon's log ends with:\n%s", c.daemon.LogTail(40))
		}
	}()
	ctx := c.context(t)
	containers, err := c.client.Containers(ctx)
	if err != nil {
		t.Errorf("list containers: %v", err)
		return
	}
	for _, container := range containers {
		remove(t, ctx, container)
	}
	c.expectNothingLeft(t)
}

// remove deletes a container with its task, whatever their states are.
func remove(t *testing.T, ctx context.Context, container containerd.Container) {
	t.Helper()
	if task, err := container.Task(ctx, nil); err == nil {
		if _, err := task.Delete(ctx, containerd.WithProcessKill); err != nil {
			t.Errorf("delete task %s: %v", container.ID(), err)
		}
	}
	if err := container.Delete(ctx, containerd.WithSnapshotCleanup); err != nil {
		t.Errorf("delete container %s: %v", container.ID(), err)
	}
}

// context returns a context with the namespace. It ends after the test's own cleanups.
func (c *column) context(t *testing.T) context.Context {
	limit := 3 * time.Minute * wait.Slowness
	if *longFlag {
		limit = time.Hour
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return namespaces.WithNamespace(ctx, c.daemon.Namespace())
}

// id returns a container id that no other test has.
func (c *column) id() string {
	c.serial++
	return fmt.Sprintf("c%d", c.serial)
}
