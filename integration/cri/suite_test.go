package cri

import (
	"context"
	"errors"
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
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// patience is how long a test waits for what should happen at once: long enough
// for a busy machine.
const patience = 30 * time.Second

// columns are the handlers that every feature is tested with.
func columns() []node.Handler {
	return []node.Handler{
		{Name: "runc", Runtime: "io.containerd.runc.v2", Sandboxer: "podsandbox"},
		{Name: "rkt", Runtime: "io.containerd.rkt.v1", Sandboxer: "podsandbox"},
		{Name: "rkt-shim", Runtime: "io.containerd.rkt.v1", Sandboxer: "shim"},
	}
}

// withOptions is a column's handler as somebody makes it who replaces the runtime
// of containerd's default handler: with the table of options that is runc's.
func withOptions(h node.Handler) node.Handler {
	h.Name += "-options"
	h.Options = "    SystemdCgroup = false\n    BinaryName = \"\""
	return h
}

// running are the columns, from the suite's start on.
var running []*column

// runTests runs the tests against a node per column, side by side.
func runTests(m *testing.M) (code int, err error) {
	ctx := context.Background()
	// CRI's client logs every error that a test provokes.
	klog.SetLogger(logr.Discard())
	if err := mountVolumes(); err != nil {
		return 1, err
	}
	images, err := testImages()
	if err != nil {
		return 1, err
	}
	for i, h := range columns() {
		c, err := openColumn(ctx, i, h, images)
		if err != nil {
			return 1, fmt.Errorf("%s: %w", h.Name, err)
		}
		defer func() { err = errors.Join(err, c.close(ctx)) }()
		running = append(running, c)
	}
	code = m.Run()
	var all results
	for _, c := range running {
		all = append(all, c.results...)
	}
	return code, all.write(resultsFile)
}

// mountVolumes makes the volumes' place what the kubelet's would be: a mount that
// propagates.
func mountVolumes() error {
	if err := os.MkdirAll(volumesDir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("volumes", volumesDir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", volumesDir, err)
	}
	if err := unix.Mount("", volumesDir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %s: %w", volumesDir, err)
	}
	return nil
}

// openColumn starts the node of a column.
func openColumn(ctx context.Context, number int, h node.Handler, images []image.Image) (*column, error) {
	c := &column{handler: h, number: number}
	var err error
	if c.node, err = node.Start(ctx, node.Options{
		Dir: fmt.Sprint(nodeDir, number), Programs: programsDir, Shims: []string{shimsDir}, Network: number,
		Handlers: []node.Handler{h, withOptions(h)}, Default: h.Name, Images: images,
	}); err != nil {
		return nil, err
	}
	c.runtime, err = remote.NewRemoteRuntimeServiceBuilder().WithEndpoint(c.node.Endpoint()).
		WithConnectionTimeout(2 * time.Minute).WithUseStreaming(false).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to CRI: %w\n%s", err, c.node.LogTail(30))
	}
	return c, nil
}

func (c *column) close(ctx context.Context) error {
	return errors.Join(c.runtime.Close(ctx), c.node.Stop())
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
	pause, err := os.ReadFile(filepath.Join(programsDir, "pause"))
	if err != nil {
		return nil, err
	}
	pauseImage := image.Image{Name: node.PauseImage, Layers: [][]image.File{{{Name: "pause", Mode: 0o755, Content: pause}}}}
	pauseImage.Config.Entrypoint = []string{"/pause"}
	pauseImage.Config.User = "65535:65535"
	data := image.Image{Name: volumeImage, Layers: [][]image.File{{
		{Name: "data/greeting", Mode: 0o644, Content: []byte("hello from an image\n")},
		{Name: "data/deep/down", Mode: 0o644, Content: []byte("deep\n")},
	}}}
	// The first of the suite is enough; the other has sixty layers.
	return []image.Image{images[0], pauseImage, data}, nil
}

// eventually waits for something that must become true; check also says how
// things stand.
func eventually(t *testing.T, what string, check func() (bool, string)) bool {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		ok, state := check()
		if ok {
			return true
		}
		if time.Now().After(deadline) {
			const shown = 2000
			t.Errorf("not within %s: %s:\n\t%s", patience, what, state[max(0, len(state)-shown):])
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// context ends after the test's own cleanups.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }
