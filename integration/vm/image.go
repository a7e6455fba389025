package main

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
)

const (
	suite = "bookworm"
	// include lists the packages that the guest has in addition to Debian's minimum.
	include = "systemd-sysv,systemd-container,dbus,runc,iproute2,procps,busybox-static,kmod,udev,containernetworking-plugins"
)

// guest has the files of the guest's first process and of its only service.
//
//go:embed guest
var guest embed.FS

// machine has the files to boot.
type machine struct{ kernel, initramfs, root string }

// newMachine makes the guest's kernel and root file system from Debian's packages,
// once per kernel and recipe.
func newMachine(ctx context.Context, log io.Writer) (machine, error) {
	kernel, err := kernelPackage(ctx)
	if err != nil {
		return machine{}, err
	}
	recipe := sha256.New()
	fmt.Fprintln(recipe, suite, include, inInitramfs, inRoot)
	for _, name := range []string{"init", "fstab", "patience.conf", "rkt-tests.service"} {
		recipe.Write(embedded(name))
	}
	name := fmt.Sprintf("vm-%s-%s-%x", suite, strings.TrimPrefix(kernel, "linux-image-"), recipe.Sum(nil)[:4])
	dir, err := binaries.Cached(name, func(dir string) error {
		done := binaries.Progress(log, "making a guest of Debian "+suite+" and "+kernel+" (once, a minute or two)")
		defer done()
		return makeMachine(ctx, dir, kernel)
	})
	return machine{
		kernel:    filepath.Join(dir, "vmlinuz"),
		initramfs: filepath.Join(dir, "initramfs"),
		root:      filepath.Join(dir, "root.ext4"),
	}, err
}

func embedded(name string) []byte {
	b, err := guest.ReadFile("guest/" + name)
	if err != nil {
		panic(err) // the recipe is embedded in this program
	}
	return b
}

func makeMachine(ctx context.Context, dir, kernel string) error {
	root := filepath.Join(dir, "root")
	if err := run(ctx, "debootstrap", "--variant=minbase", "--include="+include, suite, root); err != nil {
		return err
	}
	if err := addKernel(ctx, dir, root, kernel); err != nil {
		return err
	}
	if err := addService(root); err != nil {
		return err
	}
	if err := makeFileSystem(ctx, filepath.Join(dir, "root.ext4"), root, 2<<30); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// addService makes the guest run the tests at boot.
func addService(root string) error {
	const unit = "rkt-tests.service"
	units := filepath.Join(root, "etc/systemd/system")
	settings := filepath.Join(root, "etc/systemd/system.conf.d")
	return errors.Join(
		os.MkdirAll(settings, 0o755),
		os.WriteFile(filepath.Join(settings, "patience.conf"), embedded("patience.conf"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/fstab"), embedded("fstab"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/hostname"), []byte("rkt-guest\n"), 0o644),
		os.WriteFile(filepath.Join(units, unit), embedded(unit), 0o644),
		os.MkdirAll(filepath.Join(units, "default.target.wants"), 0o755),
		os.MkdirAll(filepath.Join(root, "payload"), 0o755),
		os.Symlink("../"+unit, filepath.Join(units, "default.target.wants", unit)),
	)
}

// makeFileSystem makes an image of that size from a directory.
func makeFileSystem(ctx context.Context, image, dir string, size int64) error {
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	return run(ctx, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", dir, image)
}

func run(ctx context.Context, program string, args ...string) error {
	_, err := output(ctx, program, args...)
	return err
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	// Users other than root may not have the directory of mkfs and debootstrap in their PATH.
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "CGO_ENABLED=0")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		const shown = 2000
		all := string(out) + said.String()
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, all[max(0, len(all)-shown):])
	}
	return string(out), nil
}
