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
	internalapi "k8s.io/cri-api/pkg/apis"
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

// handlers are all handlers of the node.
func handlers() []node.Handler {
	var all []node.Handler
	for _, h := range columns() {
		all = append(all, h, withOptions(h))
	}
	return all
}

// suite is what the tests of one run share.
type suite struct {
	node    *node.Node
	runtime internalapi.RuntimeService
	images  internalapi.ImageManagerService
	columns []*column
	results results
}

// running is the suite, from its start on.
var running *suite

// runTests runs the tests against a node of their own.
func runTests(m *testing.M) (code int, err error) {
	ctx := context.Background()
	// CRI's client logs every error that a test provokes.
	klog.SetLogger(logr.Discard())
	s := &suite{}
	if err := s.start(ctx); err != nil {
		return 1, err
	}
	running = s
	code = m.Run()
	if err := s.close(ctx); err != nil {
		return 1, err
	}
	return code, s.results.write(resultsFile)
}

func (s *suite) start(ctx context.Context) error {
	// Volumes are where the kubelet's would be: on a mount that propagates.
	if err := os.MkdirAll(volumesDir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("volumes", volumesDir, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", volumesDir, err)
	}
	if err := unix.Mount("", volumesDir, "", unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share %s: %w", volumesDir, err)
	}
	images, err := testImages()
	if err != nil {
		return err
	}
	if s.node, err = node.Start(ctx, node.Options{
		Dir: nodeDir, Programs: programsDir, Shims: []string{shimsDir},
		Handlers: handlers(), Default: "runc", Images: images,
	}); err != nil {
		return err
	}
	for _, h := range columns() {
		s.columns = append(s.columns, &column{suite: s, handler: h})
	}
	return s.connect(ctx)
}

func (s *suite) connect(ctx context.Context) (err error) {
	s.runtime, err = remote.NewRemoteRuntimeServiceBuilder().WithEndpoint(s.node.Endpoint()).WithConnectionTimeout(2 * time.Minute).WithUseStreaming(false).Build(ctx)
	if err != nil {
		return fmt.Errorf("connect to CRI: %w\n%s", err, s.node.LogTail(30))
	}
	s.images, err = remote.NewRemoteImageServiceBuilder().WithEndpoint(s.node.Endpoint()).WithConnectionTimeout(2 * time.Minute).WithUseStreaming(false).Build(ctx)
	if err != nil {
		return fmt.Errorf("connect to CRI: %w", err)
	}
	return nil
}

func (s *suite) close(ctx context.Context) error {
	return errors.Join(s.runtime.Close(ctx), s.images.Close(ctx), s.node.Stop())
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
