package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
)

// payload describes the contents of the guest's second disk.
type payload struct {
	arch     *architecture
	bin      string
	suites   []testSuite
	runtimes string
	version1 bool // the guest has version 1 of cgroups
}

// write builds everything, and makes an image of the disk.
func (p payload) write(ctx context.Context, log io.Writer, image string) error {
	if len(p.suites) == 0 {
		return errors.New("nothing of it is in the short form")
	}
	dir, err := os.MkdirTemp(filepath.Dir(image), "payload-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	prebuilt := filepath.Join(dir, "prebuilt")
	if err := p.writePrograms(ctx, log, prebuilt); err != nil {
		return err
	}
	for _, program := range p.programs() {
		if _, err := binaries.Program(ctx, prebuilt, program); err != nil {
			return err
		}
	}
	if err := run(ctx, "cp", "-a", p.bin, filepath.Join(dir, "bin")); err != nil {
		return fmt.Errorf("run make build first: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "run"), embedded("run"), 0o755); err != nil {
		return err
	}
	if err := p.writePackages(ctx, log, filepath.Join(dir, "packages")); err != nil {
		return err
	}
	if err := p.writeTests(ctx, log, filepath.Join(dir, "tests")); err != nil {
		return err
	}
	return makeFileSystem(ctx, image, dir, 1<<30)
}

// writePrograms copies the programs of others that the tests of this module use.
func (p payload) writePrograms(ctx context.Context, log io.Writer, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if !slices.ContainsFunc(p.suites, func(s testSuite) bool { return strings.HasPrefix(s.name, "integration") }) {
		return nil
	}
	programs, err := binaries.Containerd(ctx, log)
	if err != nil {
		return err
	}
	if err := run(ctx, "cp", "-a", programs+"/.", dir); err != nil {
		return err
	}
	if p.arch.foreign() { // a current runc needs a C compiler
		return nil
	}
	current, err := binaries.Runc(ctx, log)
	if err != nil {
		return err
	}
	return run(ctx, "cp", current, filepath.Join(dir, "runc-current"))
}

// has reports whether a suite is among those that run.
func (p payload) has(suite string) bool {
	return slices.ContainsFunc(p.suites, func(s testSuite) bool { return s.name == suite })
}

// writePackages makes the packages of two releases, of which the second is newer, for the tests that
// install them.
func (p payload) writePackages(ctx context.Context, log io.Writer, dir string) error {
	if !p.has("integration/packages") {
		return nil
	}
	for _, version := range []string{"v0.1.0", "v0.1.1"} {
		fmt.Fprintln(log, "==> making the packages of", version)
		for _, target := range []string{"release", "release-kvm"} {
			if err := run(ctx, "make", "-C", "..", target, "VERSION="+version, "ARCHES="+p.arch.name, "DIST="+filepath.Join(dir, version)); err != nil {
				return err
			}
		}
	}
	return nil
}

// programs lists the programs of this module that the tests run.
func (p payload) programs() []string {
	list := []string{"testprog"}
	if p.has("integration/cri") {
		list = append(list, "cri/pause")
	}
	if p.has("integration/hostile") {
		list = append(list, "hostile/attacker")
	}
	return list
}

// writeTests builds the test binaries, and lists them with their flags.
func (p payload) writeTests(ctx context.Context, log io.Writer, dir string) error {
	var list strings.Builder
	skip := needsVersion1
	if p.version1 {
		skip = needsVersion2
	}
	for _, s := range p.suites {
		fmt.Fprintln(log, "==> building the tests of", s.name)
		to := filepath.Join(dir, s.name)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		if err := run(ctx, "go", "-C", s.dir(), "test", "-c", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(to, "test"), "."); err != nil {
			return err
		}
		data := filepath.Join(s.dir(), "testdata")
		if err := os.CopyFS(filepath.Join(to, "testdata"), os.DirFS(data)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, file := range strings.Fields(s.files) {
			text, err := os.ReadFile(filepath.Join("..", file))
			if err == nil {
				err = os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o755)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
			}
			if err != nil {
				return err
			}
		}
		fmt.Fprintf(&list, "%s -test.run=%s -test.skip=%s -test.timeout=110m", s.name, s.run, skip)
		if s.name == "integration" {
			fmt.Fprintf(&list, " -runtimes=%s", p.runtimes)
		}
		fmt.Fprintln(&list, "", s.args)
	}
	return os.WriteFile(filepath.Join(dir, "list"), []byte(list.String()), 0o644)
}
