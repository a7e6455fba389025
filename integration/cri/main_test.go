package cri

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Paths in the enclosure. They are short, because sockets are below them, and on a file system
// that supports id-mapped mounts.
const (
	nodeDir     = "/opt/node"     // followed by the column's number
	programsDir = "/opt/programs" // containerd, ctr, runc's shim, pause, testprog
	shimsDir    = "/opt/shims"    // made by `make build`, and oci with a current runc
	currentRunc = "/opt/runc-current"
	resultsFile = "/opt/results.json"
	volumesDir  = "/opt/volumes"

	machinesDir = "/opt/machines" // configuration of a shim whose stage1 kvm emulates
	rktsDir     = "/opt/rkts"     // rkt's own stage1 images, if they can be built
)

func TestMain(m *testing.M) {
	enclosure.Tests{Name: "cri", Missing: missing, Fill: fill, Run: runTests, After: writeDocument}.Main(m)
}

// missing returns the reason why the suite cannot run here.
func missing() string {
	if os.Getuid() != 0 {
		return "pods need root"
	}
	for _, p := range []string{"/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap"} {
		if _, err := os.Stat(p); err != nil {
			return "the pod network is made of Debian's containernetworking-plugins (make deps): " + err.Error()
		}
	}
	return ""
}

// fill copies the programs into the enclosure, because their own directories may be covered
// there.
func fill(ctx context.Context, e enclosure.Enclosure) error {
	var copies []enclosure.Copy
	rkts, err := binaries.RktStage1s(ctx, os.Stderr)
	if err == nil {
		copies = append(copies, enclosure.Copy{From: rkts, To: rktsDir})
	} else if !errors.Is(err, exec.ErrNotFound) {
		return err
	}
	runc, err := binaries.Runc(ctx, os.Stderr)
	if err != nil {
		return err
	}
	copies = append(copies, enclosure.Copy{From: runc, To: currentRunc})
	if err := binaries.Fill(ctx, e, programsDir, shimsDir, copies...); err != nil {
		return err
	}
	if err := binaries.Wrap(ctx, e.Path(shimsDir), "oci-current", currentRunc); err != nil {
		return err
	}
	for _, name := range []string{"testprog", "cri/pause"} {
		if _, err := binaries.Program(ctx, e.Path(programsDir), name); err != nil {
			return err
		}
	}
	return nil
}
