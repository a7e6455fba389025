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
	include = "systemd-sysv,systemd-container,dbus,runc,iproute2,procps,busybox-static,kmod,udev,containernetworking-plugins,rpm"
)

// guest has the files of the guest's first process and of its only service.
//
//go:embed guest
var guest embed.FS

// machine has the files to boot.
type machine struct {
	arch                    *architecture
	kernel, initramfs, root string
}

// newMachine makes the guest's kernel and root file system from Debian's packages,
// once per kernel and recipe.
func newMachine(ctx context.Context, log io.Writer, arch *architecture) (machine, error) {
	packages, err := newPackages(ctx, arch)
	if err != nil {
		return machine{}, err
	}
	defer packages.discard()
	kernel, err := packages.kernel(ctx)
	if err != nil {
		return machine{}, err
	}
	recipe := sha256.New()
	fmt.Fprintln(recipe, suite, include, inInitramfs, arch.crypto+" "+inRoot)
	for _, name := range []string{"init", "fstab", "patience.conf", "rkt-tests.service"} {
		recipe.Write(embedded(name))
	}
	name := fmt.Sprintf("vm-%s-%s-%x", suite, strings.TrimPrefix(kernel, "linux-image-"), recipe.Sum(nil)[:4])
	dir, err := binaries.Cached(name, func(dir string) error {
		done := binaries.Progress(log, "making a guest of Debian "+suite+" and "+kernel+" (once, a minute or two)")
		defer done()
		return makeMachine(ctx, in(dir, arch), packages, kernel)
	})
	return in(dir, arch), err
}

// in returns the machine whose files are in a directory.
func in(dir string, arch *architecture) machine {
	return machine{
		arch:      arch,
		kernel:    filepath.Join(dir, "vmlinuz"),
		initramfs: filepath.Join(dir, "initramfs"),
		root:      filepath.Join(dir, "root.ext4"),
	}
}

func embedded(name string) []byte {
	b, err := guest.ReadFile("guest/" + name)
	if err != nil {
		panic(err) // the recipe is embedded in this program
	}
	return b
}

func makeMachine(ctx context.Context, m machine, packages *packages, kernel string) error {
	dir := filepath.Dir(m.root)
	root := filepath.Join(dir, "root")
	args := []string{"--variant=minbase", "--include=" + include, suite, root}
	if m.arch.foreign() {
		args = append([]string{"--foreign", "--arch=" + m.arch.name}, args...)
	}
	if err := run(ctx, "debootstrap", args...); err != nil {
		return err
	}
	if m.arch.foreign() {
		if err := unpackForeign(ctx, root); err != nil {
			return err
		}
	}
	if err := m.addKernel(ctx, root, packages, kernel); err != nil {
		return err
	}
	if err := addService(root); err != nil {
		return err
	}
	if err := makeFileSystem(ctx, m.root, root, 2<<30); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// unpackForeign makes a root file system of the packages of another architecture that debootstrap
// has downloaded. Their scripts would need an emulator, in which they take half an hour, so it
// does by itself the few steps of them that the guest needs: users, and files of /etc. The guest
// has no list of installed packages.
func unpackForeign(ctx context.Context, root string) error {
	downloaded := filepath.Join(root, "var/cache/apt/archives")
	debs, err := filepath.Glob(filepath.Join(downloaded, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range debs {
		// Directories of / are links into /usr.
		const unpack = `dpkg-deb --fsys-tarfile "$1" | tar --extract --keep-directory-symlink --directory "$2"`
		if err := run(ctx, "bash", "-o", "pipefail", "-c", unpack, "bash", deb, root); err != nil {
			return err
		}
	}
	const bus = "messagebus:x:100:"
	for to, from := range map[string][]string{
		"passwd": {"usr/share/base-passwd/passwd.master", bus + "100::/nonexistent:/usr/sbin/nologin\n"},
		"group":  {"usr/share/base-passwd/group.master", bus + "\n"},
	} {
		text, err := os.ReadFile(filepath.Join(root, from[0]))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, "etc", to), append(text, from[1]...), 0o644); err != nil {
			return err
		}
	}
	// debootstrap's first stage may leave links to the machine's own.
	for _, name := range []string{"proc", "sys"} {
		dir := filepath.Join(root, name)
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
			return err
		}
	}
	for link, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock"} {
		path := filepath.Join(root, link)
		if err := errors.Join(os.RemoveAll(path), os.Symlink(target, path)); err != nil {
			return err
		}
	}
	return errors.Join(
		// Without an id systemd asks its questions of the first boot.
		os.WriteFile(filepath.Join(root, "etc/machine-id"), []byte(strings.Repeat("7", 32)+"\n"), 0o444),
		os.RemoveAll(downloaded),
		os.RemoveAll(filepath.Join(root, "debootstrap")),
	)
}

// addService makes the guest run the tests at boot.
func addService(root string) error {
	const unit = "rkt-tests.service"
	units := filepath.Join(root, "etc/systemd/system")
	settings := filepath.Join(root, "etc/systemd/system.conf.d")
	return errors.Join(
		os.MkdirAll(settings, 0o755),
		os.MkdirAll(units, 0o755),
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
