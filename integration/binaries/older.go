package binaries

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Containerd17 returns a directory with the containerd, ctr and runc's shim of the last 1.7
// release. containerd17/go.mod pins it in a module of its own, because two major versions of
// containerd need different versions of their dependencies. The first call on a machine takes a
// minute or two; it would take much longer if the CRI plugin were built, too.
func Containerd17(ctx context.Context, log io.Writer) (string, error) {
	const module = "github.com/containerd/containerd"
	dir, version, err := pinned(ctx, "containerd17", module)
	if err != nil {
		return "", err
	}
	name := cacheName("containerd", version)
	return Cached(name, func(to string) error {
		done := Progress(log, "building containerd "+version+" from its module (once, a minute or two)")
		defer done()
		return buildIn(ctx, dir, to, "-tags", tags+" no_aufs no_cri",
			module+"/cmd/containerd", module+"/cmd/ctr", module+"/cmd/containerd-shim-runc-v2")
	})
}

// DebianContainerd returns a directory with the containerd, ctr and runc's shim of Debian's
// package. The package is unpacked and not installed, so none of its services is started.
// Without apt-get the error is exec.ErrNotFound.
func DebianContainerd(ctx context.Context, log io.Writer) (string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", err
	}
	name := fmt.Sprintf("containerd-debian-%s-%s", release(), runtime.GOARCH)
	return Cached(name, func(dir string) error {
		done := Progress(log, "fetching Debian's package of containerd (once)")
		defer done()
		return unpack(ctx, dir, "containerd", "usr/bin/containerd", "usr/bin/ctr", "usr/bin/containerd-shim-runc-v2")
	})
}

// Client16 builds containerd16/client, a client that uses containerd 1.6's Go packages, into
// dir and returns its path.
func Client16(ctx context.Context, dir string) (string, error) {
	module, err := nested(ctx, "containerd16")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "client16")
	_, err = output(ctx, "-C", module, "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./client")
	return path, err
}

// nested returns the directory of a module inside this one.
func nested(ctx context.Context, name string) (string, error) {
	root, err := output(ctx, "list", "-m", "-f", "{{.Dir}}", "github.com/rkt/containerd-shim-rkt-v1/integration")
	return filepath.Join(root, name), err
}

// pinned returns the directory of a module inside this one, and the version of another module
// that it pins.
func pinned(ctx context.Context, name, module string) (dir, version string, err error) {
	if dir, err = nested(ctx, name); err == nil {
		version, err = output(ctx, "-C", dir, "list", "-m", "-f", "{{.Version}}", module)
	}
	return dir, version, err
}

// cacheName returns the name of the directory in the cache for a version of a program, as this
// machine's Go builds it.
func cacheName(what, version string) string {
	// The go command that is executed builds for this architecture.
	arch := cmp.Or(os.Getenv("GOARCH"), runtime.GOARCH)
	return strings.Join([]string{what, version, runtime.Version(), arch}, "-")
}

// buildIn runs go build in another module.
func buildIn(ctx context.Context, module, to string, args ...string) error {
	_, err := output(ctx, append([]string{"-C", module, "build", "-trimpath", "-ldflags", "-s -w", "-o", to + "/"}, args...)...)
	return err
}

// release is the code name of the distribution.
func release() string {
	b, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(line, "VERSION_CODENAME="); ok {
			return strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	return "unknown"
}

// Download downloads a Debian package into dir. If the package lists of the machine do not have
// the package, they are updated first.
func Download(ctx context.Context, dir, name string) error {
	first := run(ctx, dir, "apt-get", "download", name)
	if first == nil {
		return nil
	}
	if err := run(ctx, dir, "apt-get", "update"); err != nil {
		return errors.Join(first, err)
	}
	return run(ctx, dir, "apt-get", "download", name)
}

func run(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}
