package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// Paths in the enclosure. They are short, because sockets are below them.
const (
	nodesDir    = "/opt/h"        // a directory for each state
	programsDir = "/opt/programs" // containerd, ctr, runc's shim
	shimsDir    = "/opt/shims"    // made by `make build`
	runcDir     = "/opt/runc"     // a link to the machine's runc, and nothing else
	denier      = "/opt/deny"     // this test program
	archive     = "/opt/image.tar"
	resultsFile = "/opt/results.json"
)

// full selects all states, and runc beside the stage1s.
var full = os.Getenv("RKT_TEST_HOSTS") != ""

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == denyCommand {
		fmt.Fprintln(os.Stderr, denyAndExecute(os.Args[2:]))
		os.Exit(1)
	}
	enclosure.Tests{Name: "hosts", Missing: missing, Fill: fill, Run: runTests, After: writeDocument}.Main(m)
}

// missing returns the reason why the suite cannot run here.
func missing() string {
	if os.Getuid() != 0 {
		return "containers need root"
	}
	return ""
}

func fill(ctx context.Context, e enclosure.Enclosure) error {
	if err := binaries.Fill(ctx, e, programsDir, shimsDir); err != nil {
		return err
	}
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(e.Path(denier), program, 0o755); err != nil {
		return err
	}
	busybox, err := image.Busybox()
	if err != nil {
		return err
	}
	for i := range busybox { // a user namespace may have no other user
		busybox[i].UID = 0
	}
	img := image.Image{Name: imageName, Layers: [][]image.File{busybox}}
	img.Config.Env = []string{"PATH=/bin"}
	return image.WriteFile(e.Path(archive), img)
}

func runTests(m *testing.M) (int, error) {
	runc, err := runcPath()
	if err != nil {
		return 1, err
	}
	if err := os.MkdirAll(runcDir, 0o755); err != nil {
		return 1, err
	}
	if err := os.Symlink(runc, filepath.Join(runcDir, "runc")); err != nil {
		return 1, err
	}
	code := m.Run()
	return code, found.write(resultsFile)
}
