package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// name is the name of the package, and of directories of the installed files.
const name = "containerd-shim-rkt"

// release is what the files of one architecture are made from.
type release struct {
	name    string // of the package: name or machinesName
	version string // 0.1.0
	arch    string // as Go names it
	time    time.Time
	source  string // the repository
	entries []entry
	kernel  *kernel // of the package of machines; nil otherwise
}

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func command() error {
	source := flag.String("source", "../..", "the repository")
	bin := flag.String("bin", "", "directory that make build has filled for the architecture")
	arch := flag.String("arch", "", "architecture: amd64 or arm64")
	version := flag.String("version", "", "version, as scripts/version prints it")
	epoch := flag.Int64("epoch", 0, "time of everything in the files, in seconds since 1970")
	out := flag.String("out", "", "directory for the files")
	machines := flag.String("machines", "", "make the packages of virtual machines; name, version and sum of their kernel's package")
	sums := flag.Bool("sums", false, "write SHA256SUMS of all files in -out, and nothing else")
	flag.Parse()
	if *sums {
		return writeSums(*out)
	}
	if *bin == "" || *arch == "" || *version == "" || *out == "" || flag.NArg() > 0 {
		return errors.New("-bin, -arch, -version and -out are needed")
	}
	r := &release{
		name: name, version: strings.TrimPrefix(*version, "v"), arch: *arch, time: time.Unix(*epoch, 0).UTC(), source: *source,
	}
	where, files := "package", []func(*release, string) error{writeTarball, writePackages, writeSBOM}
	var err error
	if *machines != "" {
		r.name, where, files = machinesName, "kvm", files[1:]
		if r.kernel, err = parseKernel(*machines); err != nil {
			return err
		}
	}
	if r.entries, err = inventory(*source, *bin, where); err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	for _, make := range files {
		if err := make(r, *out); err != nil {
			return err
		}
	}
	return nil
}

// path returns the path of a file of the release: containerd-shim-rkt-0.1.0-linux-amd64 and a
// suffix.
func (r *release) path(dir, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%s-%s-linux-%s%s", r.name, r.version, r.arch, suffix))
}

// create writes a file, and removes it again if that fails.
func create(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", path, err), os.Remove(path))
	}
	return nil
}

const sumsFile = "SHA256SUMS"

// writeSums writes the sums as sha256sum does.
func writeSums(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f os.DirEntry) bool { return f.Name() == sumsFile })
	if len(files) == 0 {
		return fmt.Errorf("%s has no files", dir)
	}
	return create(filepath.Join(dir, sumsFile), func(w io.Writer) error {
		for _, f := range files {
			content, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%x  %s\n", sha256.Sum256(content), f.Name()); err != nil {
				return err
			}
		}
		return nil
	})
}
