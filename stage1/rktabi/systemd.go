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
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"golang.org/x/sys/unix"
)

// Places in the tree of an image with systemd.
const (
	unitsDir = "usr/lib/systemd/system"
	ownUnits = "etc/systemd/system" // what is here takes precedence
)

// Units of rkt's images whose ways a current systemd does not take.
const (
	readyUnit = "supervisor-ready.service"
	flushUnit = "systemd-journal-flush.service"
)

// systemBus is where programs look for D-Bus.
const systemBus = "/run/dbus/system_bus_socket"

// toolsDir is the directory of a pod that `run` looks into first for a program.
const toolsDir = "tools"

// nspawnScript takes the place of systemd-nspawn. Words in capitals stand for what
// depends on the machine.
//
//go:embed nspawn.sh
var nspawnScript string

// hasSystemd reports whether an image is one of rkt's with systemd.
func (s *adapter) hasSystemd() bool {
	return s.has(filepath.Join(unitsDir, readyUnit))
}

// has reports whether the tree has a file of that name as it comes.
func (s *adapter) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.Rootfs(), name))
	return err == nil
}

// accommodate makes up for what rkt's images with systemd do not find today. The caller
// has entered the pod's space. What was said of the tree is an overlay of the pod's;
// the image stays as it is.
func (s *adapter) accommodate(dir string) error {
	err := errors.Join(s.keepReady(dir), s.oneJournal(dir), showV1(dir), hideRun(), s.wrapNspawn(dir))
	if err != nil {
		return fmt.Errorf("make the pod what rkt's images with systemd expect: %w", err)
	}
	return nil
}

// keepReady keeps supervisor-status: a systemd since 240 or so stops a service that has
// ended, and so removes the link at once.
func (s *adapter) keepReady(dir string) error {
	return putUnit(dir, readyUnit+".d/stage0.conf", "[Service]\nRemainAfterExit=yes\n")
}

// oneJournal masks the unit that is a second journald: the flavor host copies the unit
// of journald under the name of another.
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

// putUnit writes a file beside the units of a pod's systemd.
func putUnit(dir, name, text string) error {
	path := filepath.Join(ownUnits, name)
	return stage1.InTree(dir, func(tree *os.Root) error {
		if err := tree.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return tree.WriteFile(path, []byte(text), 0o644)
	})
}

// wrapNspawn puts a script before systemd-nspawn. Without D-Bus there is nobody to
// register a pod with, nor to ask for a cgroup, and it stays in the one that it is in:
// that has to be said. And the systemd in the pod would mount cgroup v2 beside v1: the
// machine's, all of it.
func (s *adapter) wrapNspawn(dir string) error {
	if s.hasNspawn() {
		return s.coverLoader(dir)
	}
	real, err := exec.LookPath("systemd-nspawn")
	if err != nil {
		return nil // `run` says so
	}
	// The flavor host has its pods registered in any case, and finds it by PATH.
	return putScript(filepath.Join(dir, toolsDir, "systemd-nspawn"), "'"+real+"'", ":")
}

// ownNspawn is the systemd-nspawn of images that have one.
const ownNspawn = "usr/bin/systemd-nspawn"

// hasNspawn reports whether an image has a systemd and systemd-nspawn of its own.
func (s *adapter) hasNspawn() bool { return s.has(ownNspawn) }

// coverLoader puts the script before the systemd-nspawn of an image, which `run`
// executes by the loader of the image: where that is, it sees the script, which takes
// itself away. In the pod's mounts it stays, where nobody else executes a program of
// the tree.
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

// putScript writes the script: what it calls, and the command before that.
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

// hideRun gives systemd-nspawn a tmpfs for what it leaves on one without removing it:
// /run need not be one without systemd. With systemd, machined looks there.
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
