package cri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
	"github.com/rkt/containerd-shim-rkt-v1/integration/wait"
)

// columns returns the columns with which features are tested: each handler, with each driver of
// cgroups that the machine has.
func columns() (all []*column) {
	for _, systemd := range drivers() {
		for _, h := range handlers() {
			if systemd && h.Runtime == currentRuntime {
				continue // this handler tests the runtime, not the driver
			}
			c := &column{name: h.Name, number: len(all), systemd: systemd, handler: h}
			if systemd {
				c.name += "-systemd"
			}
			if c.isRunc() {
				c.handler.Options = fmt.Sprintf("    SystemdCgroup = %t", systemd)
			}
			switch {
			case c.handler.Runtime == currentRuntime:
				c.only = currentSelection()
			case c.isNspawn() && !everyStage1():
				c.only = nspawnSelection()
			case c.isMachine():
				c.env, c.only = []string{"RKT_CONFIG=" + filepath.Join(machinesDir, machines.File)}, []string{} // TestPodsOfMachines
			}
			all = append(all, c)
		}
	}
	return all
}

// Types of runtimes. Pods of the first one have the default stage1, unless they ask for another
// one.
const (
	nativeRuntime  = "io.containerd.rkt.v1"
	ociRuntime     = "io.containerd.rkt-oci.v1"
	currentRuntime = "io.containerd.rkt-oci-current.v1" // oci with a current runc
	nspawnRuntime  = "io.containerd.rkt-nspawn.v1"
	machineRuntime = machines.Runtime
)

// everyStage1 reports whether all stage1 images are tested with all features, and runc's handler
// as well, which doubles the time of the suite.
func everyStage1() bool { return os.Getenv("RKT_TEST_EVERY_STAGE1") != "" }

// handlers returns ours, with and without a pause container: for the default stage1, for nspawn,
// and with every stage1 for oci. There is also one without a pause container for oci with a
// current runc. With every stage1, and in the guest, runc's handler is the reference: it shows
// that a test is right, and nothing of ours.
//
// With RKT_TEST_RUNTIMES=kvm there are only those of kvm.
func handlers() (all []node.Handler) {
	if everyStage1() || enclosure.InGuest() {
		all = append(all, node.Handler{Name: "runc", Runtime: "io.containerd.runc.v2", Sandboxer: "podsandbox"})
	}
	ours := func(name, runtime string) {
		all = append(all,
			node.Handler{Name: name, Runtime: runtime, Sandboxer: "podsandbox"},
			node.Handler{Name: name + "-shim", Runtime: runtime, Sandboxer: "shim"})
	}
	if machines.Only() {
		ours("kvm", machineRuntime)
		return all
	}
	ours("rkt", nativeRuntime)
	if everyStage1() {
		ours("oci", ociRuntime)
	} else {
		all = append(all, node.Handler{Name: "oci-current-shim", Runtime: currentRuntime, Sandboxer: "shim"})
	}
	ours("nspawn", nspawnRuntime)
	return all
}

// nspawnSelection has the features that are tested with nspawn unless every stage1 is tested:
// those that nspawn implements differently from native, whose code it shares for the rest, and
// those that it refuses.
func nspawnSelection() []string {
	names := []string{
		"exit codes, times and reasons",
		"network, IPC and UTS shared by the containers",
		"PID namespace per pod (shareProcessNamespace)",
		"PID namespace of the node (hostPID)",
		"sysctls",
		"privileged",
		"hostUsers: false",
		"mount propagation: Bidirectional",
		"CDI devices: nodes, mounts, environment, hooks",
		"limits of CPU and memory",
		"exec with a terminal, and its size",
		"the shim is killed: statuses are right, nothing is left",
	}
	if unified() {
		names = append(names,
			"a container sees its cgroup as the root",
			"what a pod may have holds for its containers",
			"cgroups of a container's own")
	}
	return names
}

// currentSelection has the features that are tested with oci and a current runc: those that
// runc implements in a pod without a pause container.
func currentSelection() []string {
	return []string{
		"exit codes, times and reasons",
		"network, IPC and UTS shared by the containers",
		"PID namespace per pod (shareProcessNamespace)",
		"PID namespace of the node (hostPID)",
		"sysctls",
		"exec with a terminal, and its size",
	}
}

// withOptions returns a column's handler as an operator makes it who changes only the runtime
// of containerd's default handler: with runc's table of options.
func (c *column) withOptions() node.Handler {
	h := c.handler
	h.Name += "-options"
	h.Options = fmt.Sprintf("    SystemdCgroup = %t\n    BinaryName = \"\"", c.systemd)
	return h
}

// withWritableCgroups returns a column's handler with containerd's setting that lets containers
// make cgroups below their own.
func (c *column) withWritableCgroups() node.Handler {
	h := c.handler
	h.Name += "-writable"
	h.CgroupWritable = true
	return h
}

// suiteColumns are the columns of this run.
var suiteColumns = columns()

// runTests runs the tests, and writes their results.
func runTests(m *testing.M) (code int, err error) {
	// CRI's client would log every error that a test provokes.
	klog.SetLogger(logr.Discard())
	if err := mountVolumes(); err != nil {
		return 1, err
	}
	if machines.Only() {
		if _, err := machines.Configure(shimsDir, machinesDir); err != nil {
			return 1, err
		}
	}
	code = m.Run()
	var all results
	for _, c := range suiteColumns {
		all = append(all, c.results...)
	}
	return code, all.write(resultsFile)
}

// mountVolumes makes the volumes' directory a mount that propagates, as the kubelet's is. In
// an enclosure it is a tmpfs, because the file system of an enclosure's files is not known. In
// the guest it is a bind mount, because the guest's kernel cannot map the owners of a tmpfs.
func mountVolumes() error {
	if err := os.MkdirAll(volumesDir, 0o755); err != nil {
		return err
	}
	source, kind, flags, data := "volumes", "tmpfs", uintptr(0), "mode=755"
	if enclosure.InGuest() {
		source, kind, flags, data = volumesDir, "", unix.MS_BIND, ""
	}
	if err := unix.Mount(source, volumesDir, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", volumesDir, err)
	}
	if err := unix.Mount("", volumesDir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %s: %w", volumesDir, err)
	}
	return nil
}

// open starts the node of a column, for as long as the test runs.
func (c *column) open(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	images, err := testImages()
	if err != nil {
		t.Fatal(err)
	}
	all := append([]node.Handler{c.handler, c.withOptions()}, c.beside...)
	if unified() {
		all = append(all, c.withWritableCgroups())
	}
	if c.node, err = node.Start(ctx, node.Options{
		Dir: fmt.Sprint(nodeDir, c.number), Programs: programsDir, Shims: []string{shimsDir}, Env: c.env, Network: c.number,
		Handlers: all, Default: c.handler.Name, Images: images, NRI: fmt.Sprint(nodeDir, c.number, "/nri.sock"),
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.node.Stop(); err != nil {
			t.Error(err)
		}
	})
	c.known = &leaks.Pods{}
	if err := c.known.Watch(c.dataDir()); err != nil {
		t.Fatal(err)
	}
	c.runtime, err = remote.NewRemoteRuntimeServiceBuilder().WithEndpoint(c.node.Endpoint()).
		WithConnectionTimeout(2 * time.Minute).WithUseStreaming(false).Build(ctx)
	if err != nil {
		t.Fatalf("connect to CRI: %v\n%s", err, c.node.LogTail(30))
	}
	t.Cleanup(func() {
		if err := c.runtime.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Images of the suite.
const (
	busyboxImage = "integration.test/busybox:latest"
	volumeImage  = "integration.test/volume:latest"
)

func testImages() ([]image.Image, error) {
	images, err := image.Test(filepath.Join(programsDir, "testprog"))
	if err != nil {
		return nil, err
	}
	pauseImage, err := node.Pause(filepath.Join(programsDir, "pause"))
	if err != nil {
		return nil, err
	}
	pauseImage.Config.User = "65535:65535"
	data := image.Image{Name: volumeImage, Layers: [][]image.File{{
		{Name: "data/greeting", Mode: 0o644, Content: []byte("hello from an image\n")},
		{Name: "data/deep/down", Mode: 0o644, Content: []byte("deep\n")},
	}}}
	// The first image of the suite is enough; the other has sixty layers.
	return []image.Image{images[0], pauseImage, data}, nil
}

// context ends after the test's own cleanups.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute*wait.Slowness)
	t.Cleanup(cancel)
	return ctx
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }
