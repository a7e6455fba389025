package container

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// label sets the security labels of a process.
func (r *process) label(p *specs.Process) error {
	r.AppArmor, r.SELinux = p.ApparmorProfile, p.SelinuxLabel
	if r.AppArmor != "" && !appArmorEnabled() {
		return fmt.Errorf("apparmor profile %q is asked for, but AppArmor is not enabled on this host", r.AppArmor)
	}
	if r.SELinux != "" && !selinuxEnabled() {
		// As in runc, a label that cannot be enforced is an error.
		return fmt.Errorf("selinux label %q is asked for, but SELinux is disabled or not supported on this host", r.SELinux)
	}
	return nil
}

// checkMountLabel returns an error if mounts should have a label and the host cannot set
// it.
func checkMountLabel(label string) error {
	if label != "" && !selinuxEnabled() {
		return fmt.Errorf("linux.mountLabel %q is asked for, but SELinux is disabled or not supported on this host", label)
	}
	return nil
}

// contextOption returns the mount option that labels a filesystem.
func contextOption(label string) string {
	if label == "" {
		return ""
	}
	return `context="` + label + `"` // quoted, because a label may contain commas between its categories
}

func appArmorEnabled() bool {
	b, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(b), "Y")
}

// selinuxEnabled reports whether SELinux is active: its filesystem is mounted, and a policy
// is loaded, so that processes have labels.
func selinuxEnabled() bool {
	var st unix.Statfs_t
	if unix.Statfs("/sys/fs/selinux", &st) != nil || st.Type != unix.SELINUX_MAGIC {
		return false
	}
	b, err := os.ReadFile("/proc/thread-self/attr/current")
	return err == nil && len(b) > 0 && string(b) != "kernel\x00"
}

// openAttr opens an attribute of this thread: the first of these names that exists. The
// file is written later, just before the exec. An app's process opens it in the host's
// /proc. An exec opens it while it still has the right to make a procfs.
func openAttr(names ...string) (fd int, err error) {
	last := "attr/" + names[len(names)-1]
	proc, err := openProcfs()
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", last, err)
	}
	defer proc.close()
	for _, name := range names {
		if fd, err = proc.open("thread-self/attr/"+name, unix.O_WRONLY); err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return -1, fmt.Errorf("open %s: %w", last, err)
}

func writeAttr(fd int, value string) error {
	_, err := unix.Write(fd, []byte(value))
	return err
}

// labels are the open files of the attributes that label the program.
type labels struct{ appArmor, selinux int }

func (r *process) openLabels() (l labels, err error) {
	if r.AppArmor != "" {
		// AppArmor has a file of its own since Linux 5.1, with LSM stacking.
		if l.appArmor, err = openAttr("apparmor/exec", "exec"); err != nil {
			return l, err
		}
	}
	if r.SELinux != "" {
		l.selinux, err = openAttr("exec")
	}
	return l, err
}

func (l labels) apply(r *process) error {
	if r.AppArmor != "" {
		if err := writeAttr(l.appArmor, "exec "+r.AppArmor); err != nil {
			return fmt.Errorf("apply apparmor profile %q: %w", r.AppArmor, err)
		}
	}
	if r.SELinux != "" {
		if err := writeAttr(l.selinux, r.SELinux); err != nil {
			return fmt.Errorf("set selinux label %q: %w", r.SELinux, err)
		}
	}
	return nil
}

// joinKeyring gives the process a session keyring of the app, so that it does not share its
// supervisor's. It is no error if the kernel has no keyrings or an outer sandbox forbids
// them, because the app cannot reach any keyring then.
func joinKeyring(name, label string) error {
	if name == "" {
		return nil
	}
	if label != "" {
		fd, err := openAttr("keycreate")
		if err == nil {
			err = writeAttr(fd, label)
		}
		if err != nil {
			return fmt.Errorf("label the session keyring: %w", err)
		}
		defer unix.Close(fd)
		defer func() { _ = writeAttr(fd, "") }() // the label must not apply to keys that the program makes
	}
	id, err := unix.KeyctlJoinSessionKeyring(name)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("join session keyring %s: %w", name, err)
	}
	return searchable(id)
}

// searchable lets execs, which run as the same user, join the keyring, too.
func searchable(id int) error {
	description, err := unix.KeyctlString(unix.KEYCTL_DESCRIBE, id)
	if err != nil {
		return fmt.Errorf("describe the session keyring: %w", err)
	}
	var uid, gid int
	var perm uint32
	if _, err := fmt.Sscanf(description, "keyring;%d;%d;%x;", &uid, &gid, &perm); err != nil {
		return fmt.Errorf("permissions of the session keyring, %q: %w", description, err)
	}
	const userSearch = 0x080000
	return doing("set permissions of the session keyring", unix.KeyctlSetperm(id, perm|userSearch))
}
