package hostile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// Paths in the enclosure. They are short, because sockets are below them.
const (
	nodesDir    = "/opt/h"        // a directory for each node
	programsDir = "/opt/programs" // containerd, ctr, runc's shim, attacker
	shimsDir    = "/opt/shims"    // made by `make build`
	runcDir     = "/opt/runc"     // a current runc
	oldRuncsDir = "/opt/oldruncs" // a directory for each old one
	earlierDir  = "/opt/earlier"  // made by `make build` of an earlier commit
	machinesDir = "/opt/machines" // configuration of a stage1 kvm that emulates
	resultsFile = "/opt/results.json"
)

// earlier is the last commit before the holes were closed that this suite attacks.
const earlier = "66c238c"

// long selects the long form: races at their full length, and the proofs.
var long = os.Getenv("RKT_TEST_LONG") != ""

// comparing selects runc beside ours, and all situations of compared modes. Older releases take part in the long
// form only.
var comparing = long || os.Getenv("RKT_TEST_COMPARE") != "" || enclosure.InGuest()

func TestMain(m *testing.M) {
	enclosure.Tests{Name: "hostile", Missing: missing, Fill: fill, Run: runTests, After: writeDocument}.Main(m)
}

// missing returns the reason why the suite cannot run here.
func missing() string {
	if os.Getuid() != 0 {
		return "containers need root"
	}
	return ""
}

// fill copies the programs into the enclosure, because their own directories may be covered
// there.
func fill(ctx context.Context, e enclosure.Enclosure) error {
	runc, err := binaries.Runc(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := binaries.Fill(ctx, e, programsDir, shimsDir, enclosure.Copy{From: filepath.Dir(runc), To: runcDir}); err != nil {
		return err
	}
	if long && !machines.Only() {
		if err := fillOld(ctx, e); err != nil {
			return err
		}
	}
	// A guest has a runc of another name.
	if err := os.Symlink(filepath.Base(runc), filepath.Join(e.Path(runcDir), "runc")); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	_, err = binaries.Program(ctx, e.Path(programsDir), "hostile/attacker")
	return err
}

// fillOld copies the programs that prove the attacks.
func fillOld(ctx context.Context, e enclosure.Enclosure) error {
	if err := os.MkdirAll(e.Path(oldRuncsDir), 0o755); err != nil {
		return err
	}
	for _, version := range binaries.OldRuncs() {
		runc, err := binaries.OldRunc(ctx, os.Stderr, version)
		if err != nil {
			return err
		}
		if err := e.Fill(ctx, enclosure.Copy{From: filepath.Dir(runc), To: filepath.Join(oldRuncsDir, version)}); err != nil {
			return err
		}
	}
	built, err := binaries.Earlier(ctx, os.Stderr, earlier)
	if errors.Is(err, binaries.ErrNoHistory) {
		return nil // the tests report that the attacks could not be proved
	}
	if err != nil {
		return err
	}
	return e.Fill(ctx, enclosure.Copy{From: built, To: earlierDir})
}

// runTests runs the tests, and writes their results.
func runTests(m *testing.M) (code int, err error) {
	if machines.Only() {
		if _, err := machines.Configure(shimsDir, machinesDir); err != nil {
			return 1, err
		}
	}
	code = m.Run()
	return code, errors.Join(closeNodes(), found.write(resultsFile))
}

// present reports whether the machine has a program.
func present(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// patience is the time limit for things that should happen at once. A machine boots first, by emulation, and a
// guest is emulated.
var patience = func() time.Duration {
	if machines.Only() || enclosure.InGuest() {
		return 5 * time.Minute
	}
	return time.Minute
}()
