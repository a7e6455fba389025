package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/binaries"
)

// inInitramfs are the modules for the root file system and for the port to which the results
// are written. Debian's kernels have no virtio built in.
const inInitramfs = "virtio_pci virtio_blk virtio_console crc32c_generic ext4"

// inRoot are the modules that the guest loads on demand, beside those of its architecture.
const inRoot = "block crypto fs lib mm net security drivers/block drivers/char drivers/net/veth.ko drivers/virtio"

// packages are Debian's packages of an architecture.
type packages struct {
	arch    *architecture
	options []string // of apt-get and apt-cache
	state   string   // directory with the lists of a foreign architecture; "": the machine's own
}

// newPackages returns the packages of an architecture. The lists of a foreign one are downloaded
// into a directory of their own, so that the machine's apt does not change.
func newPackages(ctx context.Context, arch *architecture) (*packages, error) {
	p := &packages{arch: arch}
	if !arch.foreign() {
		return p, nil
	}
	var err error
	if p.state, err = os.MkdirTemp("", "rkt-vm-apt-"); err != nil {
		return nil, err
	}
	p.options = []string{
		"-o", "APT::Architecture=" + arch.name, "-o", "APT::Architectures=" + arch.name, "-o", "APT::Sandbox::User=root",
		"-o", "Dir::State::Lists=" + p.state, "-o", "Dir::State::status=/dev/null",
		"-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
	}
	if err := run(ctx, "apt-get", append(p.options, "update")...); err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

func (p *packages) discard() {
	if p.state != "" {
		_ = os.RemoveAll(p.state)
	}
}

// kernel returns the package on which Debian's linux-image-ARCHITECTURE depends. If the package
// lists of the machine do not have it, they are updated first.
func (p *packages) kernel(ctx context.Context) (string, error) {
	meta := "linux-image-" + p.arch.name
	depends := append(slices.Clone(p.options), "depends", "--important", meta)
	out, err := output(ctx, "apt-cache", depends...)
	if err != nil {
		if err := run(ctx, "apt-get", append(slices.Clone(p.options), "update")...); err != nil {
			return "", err
		}
		if out, err = output(ctx, "apt-cache", depends...); err != nil {
			return "", err
		}
	}
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
			return name, nil
		}
	}
	return "", fmt.Errorf("the package %s depends on no kernel: %s", meta, out)
}

// download writes a package to a directory.
func (p *packages) download(ctx context.Context, dir, name string) error {
	if p.options == nil {
		return binaries.Download(ctx, dir, name)
	}
	cmd := exec.CommandContext(ctx, "apt-get", append(slices.Clone(p.options), "download", name)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download %s: %w: %s", name, err, out)
	}
	return nil
}

// addKernel downloads the kernel, and writes it and its initramfs to dir and its modules to
// root. It does not install the package: the package's scripts would make an initramfs and look
// for a boot loader.
func (m machine) addKernel(ctx context.Context, root string, p *packages, name string) error {
	dir := filepath.Dir(m.root)
	version := strings.TrimPrefix(name, "linux-image-")
	unpacked := filepath.Join(dir, "package")
	if err := errors.Join(os.Mkdir(unpacked, 0o755), p.download(ctx, unpacked, name)); err != nil {
		return err
	}
	packages, err := filepath.Glob(filepath.Join(unpacked, "*.deb"))
	if err != nil || len(packages) != 1 {
		return errors.Join(fmt.Errorf("apt-get download left %q", packages), err)
	}
	if err := run(ctx, "dpkg", "-x", packages[0], unpacked); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(unpacked, "boot/vmlinuz-"+version), m.kernel); err != nil {
		return err
	}
	from, modules := filepath.Join(unpacked, "lib/modules", version), filepath.Join(root, "usr/lib/modules", version)
	if err := copyModules(from, modules, m.arch.crypto+" "+inRoot); err != nil {
		return err
	}
	if err := run(ctx, "depmod", "--basedir", root, version); err != nil {
		return err
	}
	if err := writeInitramfs(m.initramfs, root, modules); err != nil {
		return err
	}
	return os.RemoveAll(unpacked)
}

func copyModules(from, to, parts string) error {
	for _, list := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := move(filepath.Join(from, list), filepath.Join(to, list)); err != nil {
			return err
		}
	}
	for part := range strings.FieldsSeq(parts) {
		err := move(filepath.Join(from, "kernel", part), filepath.Join(to, "kernel", part))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func move(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// writeInitramfs writes the initramfs that mounts the root file system: busybox, modules and
// the order in which they are loaded.
func writeInitramfs(path, root, modules string) error {
	dependencies, err := os.ReadFile(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return err
	}
	builtin, err := os.ReadFile(filepath.Join(modules, "modules.builtin"))
	if err != nil {
		return err
	}
	wanted := slices.DeleteFunc(strings.Fields(inInitramfs), func(name string) bool {
		return strings.Contains(string(builtin), "/"+name+".ko\n")
	})
	order, err := loadOrder(string(dependencies), wanted)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	busybox, err := os.ReadFile(filepath.Join(root, "bin/busybox"))
	if err != nil {
		return err
	}
	archive := cpio{w: f}
	for _, dir := range []string{"bin", "dev", "modules", "root"} {
		archive.dir(dir)
	}
	archive.file("bin/busybox", 0o755, busybox)
	archive.file("init", 0o755, embedded("init"))
	var names strings.Builder
	for _, m := range order {
		b, err := os.ReadFile(filepath.Join(modules, m))
		if err != nil {
			return err
		}
		archive.file("modules/"+filepath.Base(m), 0o644, b)
		fmt.Fprintln(&names, filepath.Base(m))
	}
	archive.file("modules/order", 0o644, []byte(names.String()))
	return errors.Join(archive.end(), f.Close())
}

// loadOrder returns the files of modules and of their dependencies, in an order in which they
// can be loaded. In modules.dep a file is followed by its dependencies, each before its own
// dependencies.
func loadOrder(dependencies string, modules []string) ([]string, error) {
	needs := map[string][]string{}
	for line := range strings.Lines(dependencies) {
		file, needed, _ := strings.Cut(line, ":")
		needs[strings.TrimSuffix(filepath.Base(file), ".ko")] = append([]string{file}, strings.Fields(needed)...)
	}
	var order []string
	for _, m := range modules {
		if needs[m] == nil {
			return nil, fmt.Errorf("the kernel has no module %s", m)
		}
		for _, file := range slices.Backward(needs[m]) {
			if !slices.Contains(order, file) {
				order = append(order, file)
			}
		}
	}
	return order, nil
}
