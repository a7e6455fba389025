package rktabi

import (
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

const (
	// Directories of units in the tree of an image with systemd.
	unitsDir = "usr/lib/systemd/system"
	ownUnits = "etc/systemd/system" // takes precedence

	// Units of rkt's images that need a change for a current systemd.
	readyUnit = "supervisor-ready.service"
	flushUnit = "systemd-journal-flush.service"

	systemBus = "/run/dbus/system_bus_socket" // the socket of D-Bus
	toolsDir  = "tools"                       // of a pod: the first directory in the PATH of `run`

	// ownNspawn is the systemd-nspawn of images that have one.
	ownNspawn = "usr/bin/systemd-nspawn"
)

// nspawnScript is executed in place of systemd-nspawn. The words in capitals are
// placeholders.
//
//go:embed nspawn.sh
var nspawnScript string

// hasSystemd reports whether an image is one of rkt's with systemd.
func (s *adapter) hasSystemd() bool {
	return s.has(filepath.Join(unitsDir, readyUnit))
}

// has reports whether the image has a file of that name.
func (s *adapter) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.Rootfs(), name))
	return err == nil
}

// accommodate changes the pod's view of the machine, and the pod's overlay of the image's
// tree, so that rkt's images with systemd work. The caller has entered the pod's mount
// namespace.
func (s *adapter) accommodate(dir string) error {
	// A systemd since about 240 stops a service that has ended, and so would remove
	// supervisor-status at once.
	ready := putUnit(dir, readyUnit+".d/stage0.conf", "[Service]\nRemainAfterExit=yes\n")
	err := errors.Join(ready, s.oneJournal(dir), showV1(dir), hideRun(), s.wrapNspawn(dir))
	if err != nil {
		return fmt.Errorf("make the pod what rkt's images with systemd expect: %w", err)
	}
	return nil
}

// oneJournal masks a second journald. The flavor host has one, because it copies journald's
// unit under another name.
func (s *adapter) oneJournal(dir string) error {
	if s.has(filepath.Join(unitsDir, flushUnit)) {
		return nil
	}
	err := stage1.InTree(dir, func(tree *os.Root) error { return tree.Symlink(os.DevNull, filepath.Join(ownUnits, flushUnit)) })
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// putUnit writes a file into the pod's own directory of units.
func putUnit(dir, name, text string) error {
	path := filepath.Join(ownUnits, name)
	return stage1.InTree(dir, func(tree *os.Root) error {
		if err := tree.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return stage1.WriteInTree(tree, path, []byte(text), 0o644)
	})
}

// wrapNspawn puts a script in place of systemd-nspawn. On a machine without D-Bus the
// script tells systemd-nspawn not to register the pod and not to ask for a cgroup. It also
// prevents the pod's systemd from mounting the machine's cgroup v2 beside v1.
func (s *adapter) wrapNspawn(dir string) error {
	if s.has(ownNspawn) {
		return s.coverLoader(dir)
	}
	real, err := exec.LookPath("systemd-nspawn")
	if err != nil {
		return nil // `run` reports the error
	}
	// The flavor host finds systemd-nspawn by PATH, and always registers its pods.
	return putScript(filepath.Join(dir, toolsDir, "systemd-nspawn"), "'"+real+"'", ":")
}

// coverLoader mounts the script on the loader with which `run` executes the image's own
// systemd-nspawn. The script removes that mount in its own namespace. The mount stays in
// the pod's namespace, where no other process executes a program of the tree.
func (s *adapter) coverLoader(dir string) error {
	root := filepath.Join(dir, stage1.RootfsDir)
	name, err := loaderOf(filepath.Join(root, ownNspawn))
	if err != nil {
		return err
	}
	loader, err := securejoin.SecureJoin(root, name)
	if err != nil {
		return err
	}
	script := filepath.Join(dir, toolsDir, "loader")
	if err := putScript(script, `"$0"`, `umount --lazy "$0"`); err != nil {
		return err
	}
	if err := unix.Mount(script, loader, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cover %s: %w", loader, err)
	}
	return nil
}

// loaderOf returns the path of the loader that a program names.
func loaderOf(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", fmt.Errorf("%s: %w", program, err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(p.Open())
			return strings.TrimRight(string(text), "\x00"), err
		}
	}
	return "", fmt.Errorf("%s names no loader", program)
}

// putScript writes the script. It first executes the command uncover and then the program
// real.
func putScript(path, real, uncover string) error {
	register, boot := `"$arg"`, ""
	if !hasBus() {
		register = "--register=no --keep-unit"
	}
	if !onlyV2() {
		boot = "systemd.unified_cgroup_hierarchy=no systemd.legacy_systemd_cgroup_controller=yes"
	}
	script := strings.NewReplacer("REAL", real, "UNCOVER", uncover, "REGISTER", register, "BOOT", boot).Replace(nspawnScript)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(script), 0o755)
}

// hasBus reports whether the machine has D-Bus.
func hasBus() bool {
	_, err := os.Stat(systemBus)
	return err == nil
}

// hideRun mounts a tmpfs on the directory in /run in which systemd-nspawn leaves files,
// because on a machine without systemd /run need not be a tmpfs. On a machine with systemd
// it mounts nothing, because machined needs the files.
func hideRun() error {
	if hasBus() {
		return nil
	}
	const runDir = "/run/systemd/nspawn"
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", runDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", runDir, err)
	}
	return nil
}

// toolPath is the PATH of `run`.
func toolPath(dir string) string {
	tools := filepath.Join(dir, toolsDir)
	if _, err := os.Lstat(tools); err != nil {
		return stage1.SearchPath()
	}
	return tools + ":" + stage1.SearchPath()
}
