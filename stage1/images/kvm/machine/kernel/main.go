// Command kernel makes what machines boot from Debian's package of a kernel: vmlinux, and modules, a
// cpio archive with the modules that machines need. `make kvm` executes it.
//
//	kernel DIR
//	kernel -package    prints the name, the version and the sum of Debian's package
//
// The same package gives the same files. SHA256SUMS has their sums, and copyright has their licence and the
// place of their source.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine/cpio"
)

// pinned is the kernel. A newer one is another line: apt-cache show NAME has version and sum.
var pinned = pin{"6.1.0-56-cloud-amd64", "6.1.192-2", "e7d02b943971edcb8790e256c02cfab3bca6c3d37c1bf25392a57c71300615ee"}

// pin is a version of Debian's package of a kernel.
type pin struct{ release, version, sum string }

func (p pin) name() string { return "linux-image-" + p.release }

// atBoot are the modules that every machine needs before its channel and its shares work, and later
// the modules that are only loaded when they are needed. They are loaded with the modules on which
// they depend.
var (
	atBoot = []string{"virtio_pci", "virtio_mmio", "virtio_console", "virtiofs", "virtio_rng"}
	later  = []string{"virtio_blk", "virtio_net", "virtio_mem", "erofs", "overlay"}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	switch {
	case len(os.Args) != 2:
		fmt.Fprintln(os.Stderr, "usage: kernel DIR, or kernel -package")
		os.Exit(2)
	case os.Args[1] == "-package":
		fmt.Println(pinned.name(), pinned.version, pinned.sum)
		return
	}
	if err := run(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "kernel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	deb, err := pinned.fetch(ctx)
	if err != nil {
		return err
	}
	if _, err := command(ctx, nil, "dpkg-deb", "-x", deb, work); err != nil {
		return err
	}
	image, err := os.ReadFile(filepath.Join(work, "boot/vmlinuz-"+pinned.release))
	if err != nil {
		return err
	}
	vmlinux, err := extract(ctx, image)
	if err != nil {
		return err
	}
	modules, err := archive(ctx, filepath.Join(work, "lib/modules", pinned.release))
	if err != nil {
		return err
	}
	terms, err := copyright(work, licence)
	if err != nil {
		return err
	}
	sums := fmt.Sprintf("%x  modules\n%x  vmlinux\n", sha256.Sum256(modules), sha256.Sum256(vmlinux))
	return errors.Join(
		replace(filepath.Join(out, "modules"), modules),
		replace(filepath.Join(out, "vmlinux"), vmlinux),
		replace(filepath.Join(out, "SHA256SUMS"), []byte(sums)),
		replace(filepath.Join(out, "copyright"), terms),
	)
}

// licence is the file of Debian that Debian's copyright files name for the text of the kernel's licence.
const licence = "/usr/share/common-licenses/GPL-2"

// copyright returns what has to be with the files: who has written them, their licence, and where their
// source is. Other distributions do not have Debian's file of the licence, so its text is part of this.
func copyright(unpacked, licence string) ([]byte, error) {
	debians, err := os.ReadFile(filepath.Join(unpacked, "usr/share/doc", pinned.name(), "copyright"))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(licence)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `The files vmlinux and modules in this directory are from Debian's package
%s, version %s. vmlinux was decompressed, and nothing else was changed.

Debian built the package from its source package linux, version %s:

    https://snapshot.debian.org/package/linux/%s/
    apt-get source linux=%s

Debian's copyright file follows, and after it the licence.

`, pinned.name(), pinned.version, pinned.version, pinned.version, pinned.version)
	b.Write(debians)
	b.WriteString("\n")
	b.Write(text)
	return b.Bytes(), nil
}

// fetch returns the path of the package in the user's cache directory.
func (p pin) fetch(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "containerd-shim-rkt")
	path := filepath.Join(cache, fmt.Sprintf("%s_%s.deb", p.name(), p.version))
	if b, err := os.ReadFile(path); err == nil && p.matches(b) {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	b, err := p.download(ctx)
	if err != nil {
		return "", fmt.Errorf("fetch Debian's package %s in version %s: %w", p.name(), p.version, err)
	}
	if !p.matches(b) {
		return "", fmt.Errorf("Debian's package %s has the SHA-256 sum %x, not %s", p.name(), sha256.Sum256(b), p.sum)
	}
	return path, replace(path, b)
}

func (p pin) matches(deb []byte) bool { return fmt.Sprintf("%x", sha256.Sum256(deb)) == p.sum }

// download returns the package. If the package lists of the machine do not have it, they are updated
// first.
func (p pin) download(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "kernel-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	get := func() error {
		cmd := exec.CommandContext(ctx, "apt-get", "-o", "APT::Sandbox::User=root", "download", p.name()+"="+p.version)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get download: %w: %s", err, out)
		}
		return nil
	}
	if first := get(); first != nil {
		if _, err := command(ctx, nil, "apt-get", "update"); err != nil {
			return nil, errors.Join(first, err)
		}
		if err := get(); err != nil {
			return nil, err
		}
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return nil, errors.Join(fmt.Errorf("apt-get download left %q", debs), err)
	}
	return os.ReadFile(debs[0])
}

// extract returns the ELF file that is compressed inside a bzImage. QEMU boots it without a
// firmware, by the kernel's PVH entry, and no guest has to decompress it. The offsets are those of
// the boot protocol: Documentation/x86/boot.rst of the kernel.
func extract(ctx context.Context, image []byte) ([]byte, error) {
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" {
		return nil, errors.New("the kernel is no bzImage")
	}
	start := (uint64(image[0x1f1])+1)*512 + uint64(binary.LittleEndian.Uint32(image[0x248:]))
	end := start + uint64(binary.LittleEndian.Uint32(image[0x24c:]))
	if end > uint64(len(image)) {
		return nil, errors.New("the kernel is a truncated bzImage")
	}
	payload := image[start:end]
	if !bytes.HasPrefix(payload, []byte{0x02, 0x21, 0x4c, 0x18}) {
		return nil, fmt.Errorf("the kernel is not compressed by lz4: it begins with %x", payload[:min(4, len(payload))])
	}
	// The last four bytes are the size, which the kernel's build appends.
	vmlinux, err := command(ctx, bytes.NewReader(payload[:len(payload)-4]), "lz4", "-dc")
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(vmlinux, []byte("\x7fELF")) {
		return nil, errors.New("the decompressed kernel is no ELF file")
	}
	return vmlinux, nil
}

// archive returns a cpio archive of modules: the directory /modules with a file NAME.ko for each. The
// list /modules/order has the files to load at boot, in this order. The list /modules/later has a
// line for each module that may be loaded later: the files to load for it, in this order, its own
// as the last.
func archive(ctx context.Context, dir string) ([]byte, error) {
	base := strings.TrimSuffix(dir, filepath.Join("/lib/modules", pinned.release))
	if _, err := command(ctx, nil, "depmod", "-b", base, pinned.release); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return nil, err
	}
	needs := dependencies(string(text))
	var boot, all []string // files
	var onDemand strings.Builder
	for _, name := range slices.Concat(atBoot, later) {
		if needs[name] == nil {
			return nil, fmt.Errorf("the kernel has no module %s", name)
		}
		for _, file := range needs[name] {
			if !slices.Contains(all, file) {
				all = append(all, file)
			}
		}
		if slices.Contains(atBoot, name) {
			boot = slices.Clone(all)
			continue
		}
		fmt.Fprintln(&onDemand, strings.Join(installed(needs[name]), " "))
	}
	var out bytes.Buffer
	w := cpio.NewWriter(&out)
	w.Dir("modules")
	for _, list := range []struct{ name, text string }{
		{"order", strings.Join(installed(boot), "\n") + "\n"}, {"later", onDemand.String()},
	} {
		w.File("modules/"+list.name, 0o644, int64(len(list.text)), strings.NewReader(list.text))
	}
	for _, file := range all {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		w.File("modules/"+name(file)+".ko", 0o644, int64(len(content)), bytes.NewReader(content))
	}
	err = w.End()
	return out.Bytes(), err
}

// dependencies returns, for each module, the files to load for it, in this order. In modules.dep a file
// is followed by its dependencies, each before its own dependencies.
func dependencies(text string) map[string][]string {
	needs := map[string][]string{}
	for line := range strings.Lines(text) {
		file, needed, _ := strings.Cut(line, ":")
		files := append([]string{file}, strings.Fields(needed)...)
		slices.Reverse(files)
		needs[name(file)] = files
	}
	return needs
}

// name returns the name that the kernel gives to the module of a file.
func name(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".ko"), "-", "_")
}

// installed returns the names that files have in the archive.
func installed(files []string) (all []string) {
	for _, f := range files {
		all = append(all, name(f)+".ko")
	}
	return all
}

// command returns the output of a program.
func command(ctx context.Context, stdin io.Reader, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", program, err, stderr.Bytes())
	}
	return out, nil
}

// replace writes a file in one step.
func replace(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
