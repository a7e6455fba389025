package stage1

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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

// hasSystemd tells whether an image is one of rkt's with systemd.
func (s *Stage1) hasSystemd() bool {
	return s.Rkts() && s.has(filepath.Join(unitsDir, readyUnit))
}

// has tells whether the tree has a file of that name as it comes.
func (s *Stage1) has(name string) bool {
	_, err := os.Lstat(filepath.Join(s.Rootfs(), name))
	return err == nil
}

// accommodate makes up for what rkt's images with systemd do not find today. The caller
// has entered the pod's space. What was said of the tree is an overlay of the pod's;
// the image stays as it is.
func (s *Stage1) accommodate(dir string) error {
	err := errors.Join(s.keepReady(dir), s.oneJournal(dir), showV1(dir), hideRun(), s.wrapNspawn(dir))
	if err != nil {
		return fmt.Errorf("make the pod what rkt's images with systemd expect: %w", err)
	}
	return nil
}

// keepReady keeps supervisor-status: a systemd since 240 or so stops a service that has
// ended, and so removes the link at once.
func (s *Stage1) keepReady(dir string) error {
	return putUnit(dir, readyUnit+".d/stage0.conf", "[Service]\nRemainAfterExit=yes\n")
}

// oneJournal masks the unit that is a second journald: the flavor host copies the unit
// of journald under the name of another.
func (s *Stage1) oneJournal(dir string) error {
	if s.has(filepath.Join(unitsDir, flushUnit)) {
		return nil
	}
	path := filepath.Join(dir, rootfsDir, ownUnits, flushUnit)
	if err := os.Symlink(os.DevNull, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// putUnit writes a file beside the units of a pod's systemd.
func putUnit(dir, name, text string) error {
	path := filepath.Join(dir, rootfsDir, ownUnits, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// wrapNspawn puts a script in the place of systemd-nspawn, which the flavor host finds
// by PATH. It has its pods registered in any case; without D-Bus there is nobody to do
// that, and the pod stays in the cgroup that it is in. And the systemd in the pod would
// mount cgroup v2 beside v1: the machine's, all of it.
func (s *Stage1) wrapNspawn(dir string) error {
	real, err := exec.LookPath("systemd-nspawn")
	if err != nil {
		return nil // `run` says so, or the image has its own
	}
	register, boot := "--register=true", ""
	if !hasBus() {
		register = "--register=no --keep-unit"
	}
	if !onlyV2() {
		boot = "systemd.unified_cgroup_hierarchy=no systemd.legacy_systemd_cgroup_controller=yes"
	}
	script := strings.NewReplacer("REAL", real, "REGISTER", register, "BOOT", boot).Replace(nspawnScript)
	if err := os.MkdirAll(filepath.Join(dir, toolsDir), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, toolsDir, "systemd-nspawn"), []byte(script), 0o755)
}

// hasBus tells whether the machine has D-Bus.
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
		return searchPath()
	}
	return tools + ":" + searchPath()
}
