package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// Nerdctl returns a real nerdctl, of the version that integration/nerdctl pins. The first call
// on a machine takes a minute or two. If it can neither be found nor built, the error is
// exec.ErrNotFound.
func Nerdctl(ctx context.Context, log io.Writer) (string, error) {
	const module = "github.com/containerd/nerdctl/v2"
	if dir, ok := prebuilt(); ok {
		path := filepath.Join(dir, "nerdctl")
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%w: %w", exec.ErrNotFound, err)
		}
		return path, nil
	}
	dir, err := fromModule(ctx, log, "nerdctl", module, "a minute or two", module+"/cmd/nerdctl")
	return filepath.Join(dir, "nerdctl"), err
}

// Docker returns a directory with a real dockerd, which integration/moby pins, and docker,
// Debian's command line client. The first call on a machine takes five minutes of a processor.
func Docker(ctx context.Context, log io.Writer) (daemon, client string, err error) {
	const module = "github.com/moby/moby/v2"
	if daemon, err = fromModule(ctx, log, "moby", module, "five minutes of a processor", module+"/cmd/dockerd"); err != nil {
		return "", "", err
	}
	dir, err := Cached(fmt.Sprintf("docker-debian-%s-%s", release(), runtime.GOARCH), func(dir string) error {
		done := Progress(log, "fetching Debian's package of Docker's client (once)")
		defer done()
		return unpack(ctx, dir, "docker.io", "usr/bin/docker")
	})
	return filepath.Join(daemon, "dockerd"), filepath.Join(dir, "docker"), err
}

// BuildKit returns a directory with a real buildkitd and buildctl, which integration/buildkit
// pins. The first call on a machine takes three minutes of a processor.
func BuildKit(ctx context.Context, log io.Writer) (string, error) {
	const module = "github.com/moby/buildkit"
	return fromModule(ctx, log, "buildkit", module, "three minutes of a processor", module+"/cmd/buildkitd", module+"/cmd/buildctl")
}

// Stress builds containerd-stress, of the containerd that go.mod pins, into dir.
func Stress(ctx context.Context, dir string) error {
	return build(ctx, dir, "-tags", tags, containerd+"/cmd/containerd-stress")
}

// fromModule builds programs of a module, whose version is pinned by the nested module in the
// directory that the parameter in names. The directory of the result is named after the first
// program.
func fromModule(ctx context.Context, log io.Writer, in, module, takes string, programs ...string) (string, error) {
	dir, version, err := pinned(ctx, in, module)
	if err != nil {
		return "", err
	}
	name := filepath.Base(programs[0])
	return Cached(cacheName(name, version), func(to string) error {
		done := Progress(log, fmt.Sprintf("building %s %s from its module (once, %s)", name, version, takes))
		defer done()
		return buildIn(ctx, dir, to, programs...)
	})
}

// unpack downloads a Debian package and copies some of its files, side by side, into dir. It
// installs nothing.
func unpack(ctx context.Context, dir, name string, files ...string) error {
	if err := Download(ctx, dir, name); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(packages) != 1 {
		return errors.Join(fmt.Errorf("apt-get download left %q", packages), err)
	}
	unpacked := filepath.Join(dir, "package")
	if err := run(ctx, dir, "dpkg", "-x", packages[0], unpacked); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(unpacked, f), filepath.Join(dir, filepath.Base(f))); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(unpacked), os.Remove(packages[0]))
}
