package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
	"github.com/rkt/containerd-shim-rkt-v1/integration/machines"
)

// Paths inside the enclosure.
const (
	suiteDir   = "/run/suite"        // client.test and its testdata
	programDir = "/run/suite/bin"    // the whole PATH
	shimDir    = "/run/suite/shims"  // what `make build` made
	machineDir = "/run/suite/kvm"    // the configuration of a stage1 kvm that emulates
	callsFile  = "/run/suite/calls"  // see calls.go
	ncProgram  = "/run/suite/nc"     // for the images
	caFile     = "/run/suite/ca.pem" // of the registry
)

// column is a runtime with which the suite runs.
type column struct {
	name    string
	runtime string
	// stage1 has the containers, if the runtime is ours.
	stage1 string
	// flavor is the suite's name for the runtime. If it is not runc, tests of runc's own
	// command line are skipped.
	flavor string
	// exceptions are the tests that need not pass.
	exceptions []exception
}

// ofMachines reports whether each container is a machine.
func (c column) ofMachines() bool { return c.runtime == machines.Runtime }

// columnsNamed reads a list of columns. The baseline is always the first.
func columnsNamed(list string) ([]column, error) {
	known := []column{
		{name: "runc", runtime: "io.containerd.runc.v2", flavor: "runc"},
		{name: "rkt", runtime: "io.containerd.rkt.v1", stage1: "native", flavor: "rkt", exceptions: exceptions()},
		{name: "kvm", runtime: machines.Runtime, stage1: "kvm", flavor: "rkt", exceptions: append(exceptions(), exceptionsOfMachines()...)},
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.ContainsFunc(known, func(c column) bool { return c.name == name }) {
			return nil, fmt.Errorf("unknown column %q: runc, rkt or kvm", name)
		}
	}
	return slices.DeleteFunc(known, func(c column) bool { return !slices.Contains(names, c.name) }), nil
}

// tools are the programs of the host that the suite, containerd or runc executes.
var tools = []string{"sh", "true", "grep", "ps", "lsof", "mkfs.xfs"}

// fill copies the programs of the column into the enclosure, and none of another runtime that
// could run in its place.
func (c column) fill(ctx context.Context, e enclosure.Enclosure, p programs) error {
	if err := os.MkdirAll(e.Path(programDir), 0o755); err != nil {
		return err
	}
	copies := []enclosure.Copy{
		{From: filepath.Join(p.containerd, "containerd"), To: programDir},
		{From: filepath.Join(p.suite, "client.test"), To: suiteDir},
		{From: filepath.Join(p.suite, "testdata"), To: suiteDir},
		{From: p.nc, To: ncProgram},
	}
	links := map[string]string{}
	host := tools
	if c.name == "runc" {
		copies = append(copies,
			enclosure.Copy{From: filepath.Join(p.containerd, "containerd-shim-runc-v2"), To: programDir},
			enclosure.Copy{From: filepath.Join(p.suite, "runc-fp"), To: programDir})
		host = append([]string{"runc"}, tools...)
	} else {
		copies = append(copies, enclosure.Copy{From: p.bin, To: shimDir})
		shim := filepath.Join(shimDir, "containerd-shim-rkt-v1")
		links["containerd-shim-rkt-v1"], links["containerd-shim-rkt-kvm-v1"] = shim, shim
		// Some clients of the suite use the built-in default, which is runc's shim. Put our
		// shim in its place, as a user would.
		links["containerd-shim-runc-v2"] = shim
	}
	for _, name := range host {
		path, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("the client suite needs it (make deps): %w", err)
		}
		links[name] = path
	}
	if err := e.Fill(ctx, copies...); err != nil {
		return err
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(e.Path(programDir), name)); err != nil {
			return err
		}
	}
	return nil
}

// environment returns the environment of the suite, its daemons and their shims.
func (c column) environment(further ...string) []string {
	own := []string{
		"PATH=" + programDir,
		"HOME=/root",
		"TEST_RUNTIME=" + c.runtime,
		"RUNC_FLAVOR=" + c.flavor,
	}
	if c.ofMachines() {
		own = append(own, "RKT_CONFIG="+filepath.Join(machineDir, machines.File))
	}
	return append(own, further...)
}

// configure makes, in the enclosure, the configuration of the column's shims. Machines are also the
// default, for clients that use it.
func (c column) configure() error {
	if !c.ofMachines() {
		return nil
	}
	_, err := machines.Configure(shimDir, machineDir, `default = "kvm"`)
	return err
}

// programs has the paths of everything that is copied into an enclosure.
type programs struct {
	bin        string // of the shim under test
	containerd string // directory of containerd and runc's shim
	suite      string // directory of client.test
	nc         string
}

func buildPrograms(ctx context.Context, bin, dir string) (p programs, err error) {
	if p.bin, err = binaries.Built(bin); err != nil {
		return p, err
	}
	if p.containerd, err = binaries.Containerd(ctx, os.Stderr); err != nil {
		return p, err
	}
	if p.suite, err = binaries.ClientSuite(ctx, os.Stderr); err != nil {
		return p, err
	}
	p.nc, err = binaries.Program(ctx, dir, "clientsuite/nc")
	return p, err
}

// versions returns the versions of containerd and runc.
func (p programs) versions(ctx context.Context) (containerd, runc string, err error) {
	out, err := exec.CommandContext(ctx, filepath.Join(p.containerd, "containerd"), "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("containerd --version: %w", err)
	}
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return "", "", fmt.Errorf("containerd --version says %q", out)
	}
	containerd, _, _ = strings.Cut(fields[2], "+") // the rest describes the build
	if out, err = exec.CommandContext(ctx, "runc", "--version").Output(); err != nil {
		return "", "", fmt.Errorf("runc --version: %w", err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return containerd, strings.TrimPrefix(first, "runc version "), nil
}
