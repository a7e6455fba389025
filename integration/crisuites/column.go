package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/node"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// Paths in the enclosure.
const (
	nodeDir     = "/run/node"
	programsDir = "/run/programs" // containerd, ctr, runc's shim, pause
	shimsDir    = "/run/shims"    // made by `make build`
	suiteDir    = "/run/suite"    // the suite, and its working directory
	reportFile  = "/run/report"   // written by critest
	outputFile  = "/run/output"   // the output of a suite
	caFile      = "/run/ca.pem"
	machinesDir = "/run/machines" // the configuration of a stage1 kvm that emulates
)

const runcRuntime = "io.containerd.runc.v2"

// columnsNamed reads a list of handlers.
func columnsNamed(list string) ([]node.Handler, error) {
	known := []node.Handler{
		{Name: "runc", Runtime: runcRuntime, Sandboxer: "podsandbox"},
		{Name: "rkt", Runtime: "io.containerd.rkt.v1", Sandboxer: "podsandbox"},
		{Name: "rkt-shim", Runtime: "io.containerd.rkt.v1", Sandboxer: "shim"},
		{Name: "kvm", Runtime: machines.Runtime, Sandboxer: "podsandbox", NoHostDevices: true},
		{Name: "kvm-shim", Runtime: machines.Runtime, Sandboxer: "shim", NoHostDevices: true},
	}
	var found []node.Handler
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(known, func(h node.Handler) bool { return h.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown column %q: runc, rkt, rkt-shim, kvm or kvm-shim", name)
		}
		found = append(found, known[i])
	}
	return found, nil
}

// runColumn runs the suite with one handler, in an enclosure below dir.
func runColumn(ctx context.Context, o options, su suite, h node.Handler, dir string) (report, error) {
	log, err := os.Create(filepath.Join(dir, h.Name+".log"))
	if err != nil {
		return report{}, err
	}
	defer log.Close()
	e := enclosure.Enclosure{
		Dir:    filepath.Join(dir, h.Name),
		Args:   []string{"-suite=" + o.suite, "-columns=" + h.Name, "-focus=" + o.focus, "-timeout=" + o.timeout.String()},
		Stdout: log,
		Stderr: log,
	}
	if err := e.Prepare(); err != nil {
		return report{}, err
	}
	if err := fill(ctx, e, su, o.bin); err != nil {
		return report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout+2*time.Minute)
	defer cancel()
	code, err := e.Run(ctx) // the code is not 0 if a spec fails; the report has the details
	if err != nil {
		return report{}, err
	}
	r, err := su.report(h.Name, e.Path(su.results))
	if err != nil {
		return report{}, fmt.Errorf("the suite with the handler %s ended with code %d: %w; see %s", h.Name, code, err, log.Name())
	}
	if !o.keep {
		err = keepLog(e, dir, h)
	}
	return r, err
}

// keepLog keeps containerd's log and removes the rest of an enclosure.
func keepLog(e enclosure.Enclosure, dir string, h node.Handler) error {
	if err := os.Rename(e.Path(filepath.Join(nodeDir, "containerd.log")), filepath.Join(dir, h.Name+"-containerd.log")); err != nil {
		return err
	}
	return os.RemoveAll(e.Dir)
}

// fill copies the programs into the enclosure.
func fill(ctx context.Context, e enclosure.Enclosure, su suite, bin string) error {
	bin, err := binaries.Built(bin)
	if err != nil {
		return err
	}
	containerd, err := binaries.Containerd(ctx, os.Stderr)
	if err != nil {
		return err
	}
	program, err := su.program(ctx, os.Stderr)
	if err != nil {
		return err
	}
	err = e.Fill(ctx,
		enclosure.Copy{From: containerd, To: programsDir},
		enclosure.Copy{From: bin, To: shimsDir},
		enclosure.Copy{From: program, To: suiteDir})
	if err != nil {
		return err
	}
	for _, name := range append([]string{"cri/pause"}, su.programs...) {
		if _, err := binaries.Program(ctx, e.Path(programsDir), name); err != nil {
			return err
		}
	}
	return nil
}
