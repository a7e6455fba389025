// Package binaries makes the programs that the suites and the benchmark use: containerd, ctr,
// runc's shim and containerd's own client suite, from the module that go.mod pins, and the test
// program. Programs that take long to build are built once and kept in the user's cache
// directory. The shim under test is built by `make build`, not here.
package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const containerd = "github.com/containerd/containerd/v2"

// tags leave out features that the suite does not use or that need a C compiler.
const tags = "urfave_cli_no_docs no_btrfs no_devmapper no_zfs"

// Containerd returns a directory with containerd, ctr and containerd-shim-runc-v2. The first
// call on a machine takes about 80 seconds of two processors, and reports that on log.
func Containerd(ctx context.Context, log io.Writer) (string, error) {
	if dir, ok := prebuilt(); ok {
		return dir, nil
	}
	version, err := output(ctx, "list", "-m", "-f", "{{.Version}}", containerd)
	if err != nil {
		return "", err
	}
	name := cacheName("containerd", version)
	return Cached(name, func(dir string) error {
		done := Progress(log, "building containerd "+version+" from its module (once, a minute or two)")
		defer done()
		return build(ctx, dir, "-tags", tags,
			containerd+"/cmd/containerd", containerd+"/cmd/ctr", containerd+"/cmd/containerd-shim-runc-v2")
	})
}

// ClientSuite returns a directory with the programs that containerd's client suite needs beside
// Containerd: client.test, the suite itself; testdata, which the suite reads in its working
// directory; and runc-fp, a runc that fails on demand. The first call on a machine takes a
// minute.
func ClientSuite(ctx context.Context, log io.Writer) (string, error) {
	const suite = containerd + "/integration/client"
	info, err := output(ctx, "list", "-f", "{{.Module.Version}} {{.Dir}}", suite)
	if err != nil {
		return "", err
	}
	version, source, _ := strings.Cut(info, " ")
	name := cacheName("clientsuite", version)
	return Cached(name, func(dir string) error {
		done := Progress(log, "building the client suite of containerd "+version+" from its module (once, a minute)")
		defer done()
		if _, err := output(ctx, "test", "-c", "-trimpath", "-ldflags", "-s -w", "-tags", tags,
			"-o", filepath.Join(dir, "client.test"), suite); err != nil {
			return err
		}
		if err := os.CopyFS(filepath.Join(dir, "testdata"), os.DirFS(filepath.Join(source, "testdata"))); err != nil {
			return err
		}
		return build(ctx, dir, containerd+"/integration/failpoint/cmd/runc-fp")
	})
}

// Program builds a program of this module into dir and returns its path.
func Program(ctx context.Context, dir, name string) (string, error) {
	if dir, ok := prebuilt(); ok {
		return filepath.Join(dir, filepath.Base(name)), nil
	}
	err := build(ctx, dir, "github.com/rkt/containerd-shim-rkt-v1/integration/"+name)
	return filepath.Join(dir, filepath.Base(name)), err
}

// TestProgram builds the test program into dir and returns its path.
func TestProgram(ctx context.Context, dir string) (string, error) {
	return Program(ctx, dir, "testprog")
}

// Cached returns the directory name in the cache. If it is missing, fill makes it. Processes
// that want the same directory wait for each other.
func Cached(name string, fill func(dir string) error) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir() // without HOME the cache lasts until the next boot
	}
	base = filepath.Join(base, "containerd-shim-rkt")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(base, name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	dir := filepath.Join(base, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(base, name+".part-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := fill(tmp); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}

func build(ctx context.Context, dir string, args ...string) error {
	_, err := output(ctx, append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", dir + "/"}, args...)...)
	return err
}

// output returns the output of the go command in this module.
func output(ctx context.Context, args ...string) (string, error) {
	return outputWith(ctx, "CGO_ENABLED=0", args...)
}

// outputWith is output with a variable in the environment.
func outputWith(ctx context.Context, variable string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), variable)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(bytes.TrimSpace(out)), nil
}

// Progress prints what is being done, and repeats it every ten seconds until done is called.
func Progress(log io.Writer, what string) (done func()) {
	start := time.Now()
	fmt.Fprintf(log, "==> %s\n", what)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(10 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintf(log, "    still at it after %s\n", time.Since(start).Round(time.Second))
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		fmt.Fprintf(log, "    took %s\n", time.Since(start).Round(time.Second))
	}
}
