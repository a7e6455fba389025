package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// Paths in the enclosure.
const (
	toolsDir    = "/run/tools"    // of runtime-tools; the programs' working directory
	programsDir = "/run/programs" // containerd, runc's shim, the client
	shimsDir    = "/run/shims"    // made by `make build`
	daemonDir   = "/run/c"
	reportFile  = "/run/report"
)

// column is a runtime with which the programs run.
type column struct {
	name string
	// shim is the runtime's name for containerd. If it is empty, the programs execute runc.
	shim string
}

func known() []column {
	return []column{
		{name: "runc"},
		{name: "runc-shim", shim: "io.containerd.runc.v2"},
		{name: "native", shim: "io.containerd.rkt.v1"},
		{name: "oci", shim: "io.containerd.rkt-oci.v1"},
		{name: "nspawn", shim: "io.containerd.rkt-nspawn.v1"},
	}
}

// columnsNamed reads a list of columns.
func columnsNamed(list string) ([]column, error) {
	var found []column
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(known(), func(c column) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown column %q: runc, runc-shim, native, oci or nspawn", name)
		}
		found = append(found, known()[i])
	}
	return found, nil
}

// programs has the paths of everything that is copied into an enclosure.
type programs struct {
	bin        string // of the shim under test
	containerd string // directory of containerd and runc's shim
	tools      string // of runtime-tools
	version    string // of runtime-tools
	client     string
}

func buildPrograms(ctx context.Context, bin, dir string) (p programs, err error) {
	if p.bin, err = binaries.Built(bin); err != nil {
		return p, err
	}
	if p.containerd, err = binaries.Containerd(ctx, os.Stderr); err != nil {
		return p, err
	}
	if p.tools, p.version, err = binaries.RuntimeTools(ctx, os.Stderr); err != nil {
		return p, err
	}
	p.client, err = binaries.Program(ctx, dir, "ocisuite/client")
	return p, err
}

// runcVersion returns the version of the machine's runc, which all columns use that need a
// runc.
func runcVersion(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "runc", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("runc --version: %w", err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "runc version "), nil
}

// execute runs the programs with the column, in an enclosure below dir.
func (c column) execute(ctx context.Context, o options, p programs, dir string) (report, error) {
	log, err := os.Create(filepath.Join(dir, c.name+".log"))
	if err != nil {
		return report{}, err
	}
	defer log.Close()
	e := enclosure.Enclosure{
		Dir:    filepath.Join(dir, c.name),
		Args:   []string{"-columns=" + c.name, "-run=" + o.run, "-timeout=" + o.timeout.String()},
		Stdout: log,
		Stderr: log,
	}
	if err := e.Prepare(); err != nil {
		return report{}, err
	}
	err = e.Fill(ctx,
		enclosure.Copy{From: p.containerd, To: programsDir},
		enclosure.Copy{From: p.client, To: programsDir},
		enclosure.Copy{From: p.bin, To: shimsDir},
		enclosure.Copy{From: p.tools, To: toolsDir})
	if err != nil {
		return report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout+time.Minute)
	defer cancel()
	if code, err := e.Run(ctx); err != nil || code != 0 {
		return report{}, fmt.Errorf("it ended with code %d, see %s: %v", code, log.Name(), err)
	}
	r := report{column: c.name}
	b, err := os.ReadFile(e.Path(reportFile))
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(b, &r.results)
}
