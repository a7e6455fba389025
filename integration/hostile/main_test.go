package hostile

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Where things are in the enclosure: short paths, for there are sockets below.
const (
	nodesDir    = "/opt/h"        // a directory for each node
	programsDir = "/opt/programs" // containerd, ctr, runc's shim, attacker
	shimsDir    = "/opt/shims"    // what `make build` made
	runcDir     = "/opt/runc"     // a current runc
	oldRuncsDir = "/opt/oldruncs" // a directory for each old one
	earlierDir  = "/opt/earlier"  // what `make build` made of an earlier commit
	resultsFile = "/opt/results.json"
)

// earlier is the commit before the repairs of what this suite was written for.
const earlier = "66c238c"

// long selects the long form: races as often as is ever demanded, and the proofs.
var long = os.Getenv("RKT_TEST_LONG") != ""

func TestMain(m *testing.M) {
	enclosure.Tests{Name: "hostile", Missing: missing, Fill: fill, Run: runTests, After: writeDocument}.Main(m)
}

// missing is why the suite cannot run here.
func missing() string {
	if os.Getuid() != 0 {
		return "containers need root"
	}
	return ""
}

// fill copies the programs into the enclosure: where they are may be covered.
func fill(ctx context.Context, e enclosure.Enclosure) error {
	runc, err := binaries.Runc(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if err := binaries.Fill(ctx, e, programsDir, shimsDir, enclosure.Copy{From: filepath.Dir(runc), To: runcDir}); err != nil {
		return err
	}
	if long {
		if err := fillOld(ctx, e); err != nil {
			return err
		}
	}
	_, err = binaries.Program(ctx, e.Path(programsDir), "hostile/attacker")
	return err
}

// fillOld copies what the attacks are proved with.
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
		return nil // the tests say that they could not be proved
	}
	if err != nil {
		return err
	}
	return e.Fill(ctx, enclosure.Copy{From: built, To: earlierDir})
}

// runTests runs the tests, and keeps what they found.
func runTests(m *testing.M) (code int, err error) {
	code = m.Run()
	return code, errors.Join(closeNodes(), found.write(resultsFile))
}

// present reports whether a program of the machine's is there.
func present(program string) bool {
	_, err := exec.LookPath(program)
	return err == nil
}

// patience is how long something may take that should happen at once.
const patience = time.Minute
