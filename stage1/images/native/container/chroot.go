package container

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// An app without a mount namespace uses the host's. It changes its root by chroot(2), and
// makes no mount: the mount would be in the host's namespace, and would remain if this
// program was killed.

// validateChroot refuses the fields that need a mount.
func validateChroot(spec *specs.Spec, ns namespaces) error {
	l := spec.Linux
	for _, f := range []struct {
		field string
		set   bool
	}{
		{"mounts", len(spec.Mounts) > 0},
		{"root.readonly", spec.Root != nil && spec.Root.Readonly},
		{"linux.maskedPaths", len(l.MaskedPaths) > 0},
		{"linux.readonlyPaths", len(l.ReadonlyPaths) > 0},
		{"linux.rootfsPropagation", l.RootfsPropagation != ""},
		{"linux.uidMappings", ns.has(specs.UserNamespace)},
		{"process.terminal", spec.Process.Terminal},
	} {
		if f.set {
			return refuse(f.field, "not supported without a mount namespace, because it needs mounts")
		}
	}
	return nil
}

// openChroot opens the app's root and makes its devices.
func (a *builder) openChroot() error {
	fd, err := unix.Open(a.Rootfs.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open rootfs %s: %w", a.Rootfs.Path, err)
	}
	return inOrder(func() error { return a.root.set(fd) }, a.openDev, a.makeDevices, a.linkDevices)
}

// changeRoot makes a directory this process's root. It leaves the mount namespace alone.
func changeRoot(dir int) error {
	return inOrder(
		func() error { return doing("enter the rootfs", unix.Fchdir(dir)) },
		func() error { return doing("chroot", unix.Chroot(".")) },
		func() error { return doing("enter the new root", unix.Chdir("/")) },
	)
}

// changeRoot gives an exec the app's root if the app has no mount namespace. Otherwise the
// exec gets the root with the namespace.
func (e *execInit) changeRoot() error {
	if e.Chroot == 0 {
		return nil
	}
	defer unix.Close(e.Chroot)
	return changeRoot(e.Chroot)
}
