package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// jail is where QEMU runs: a root directory without a file, namespaces of its own, and a user of its
// own without a capability.
//
//	prepare: the root has QEMU's program and libraries, the files of Config, and the guest's memory
//	         QEMU starts, reads them and waits (-S)
//	empty:   nothing is left in the root
//	         the guest executes its first instruction
//
// prepare and empty are called on the thread that starts QEMU. That thread has the jail's mount
// namespace as long as QEMU lives.
type jail struct {
	dir    string            // a directory of the machine's, where the root is mounted
	files  map[string]string // files of the root, by name, with their paths on the host
	memory *memory
	kvm    bool // the root has the device
	user   int  // QEMU's user and group
}

// root is the directory of the jail's mount namespace that QEMU has as its root. The kernel makes no
// user namespace for a process whose root is not that of its mount namespace.
const root = "/root"

// programs are the directories of the host in which programs, libraries and firmware are.
var programs = []string{"/usr", "/lib", "/lib64"}

// attributes returns what os.StartProcess does after prepare.
func (j *jail) attributes() syscall.SysProcAttr {
	return syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
		Chroot:     root,
		Credential: &syscall.Credential{Uid: uint32(j.user), Gid: uint32(j.user)},
	}
}

// prepare moves this thread into a new mount namespace, in which the jail's root is all that there
// is, and gives up for the thread's children what they must not have.
func (j *jail) prepare() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("make the jail's mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the jail's mounts private: %w", err)
	}
	if err := unix.Mount("jail", j.dir, "tmpfs", unix.MS_NOSUID, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mount the jail's root: %w", err)
	}
	if err := j.fill(j.dir + root); err != nil {
		return fmt.Errorf("fill the jail's root: %w", err)
	}
	if err := unix.Chdir(j.dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change to the jail's root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's root: %w", err)
	}
	return j.renounce()
}

// fill makes the root's files.
func (j *jail) fill(to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, dir := range programs {
		info, err := os.Lstat(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 { // of a system with merged directories: to usr/lib
			target, err := os.Readlink(dir)
			if err != nil {
				return err
			}
			if err := os.Symlink(target, to+dir); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(os.Mkdir(to+dir, 0o755), bind(dir, to+dir)); err != nil {
			return err
		}
	}
	for name, path := range j.files {
		f, err := os.OpenFile(filepath.Join(to, name), os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Close(), bind(path, f.Name())); err != nil {
			return err
		}
	}
	if err := j.memory.mount(filepath.Join(to, memoryDir)); err != nil {
		return err
	}
	if !j.kvm {
		return nil
	}
	var device unix.Stat_t
	if err := unix.Stat(kvmDevice, &device); err != nil {
		return fmt.Errorf("%s: %w", kvmDevice, err)
	}
	if err := os.Mkdir(filepath.Dir(to+kvmDevice), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(to+kvmDevice, unix.S_IFCHR|0o600, int(device.Rdev)); err != nil {
		return fmt.Errorf("make %s: %w", kvmDevice, err)
	}
	return os.Chown(to+kvmDevice, j.user, j.user)
}

const kvmDevice = "/dev/kvm"

// bind makes a file or directory visible at another path, where nothing of it can be changed.
func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", from, err)
	}
	const flags = unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	if err := unix.Mount("", to, "", flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", from, err)
	}
	return nil
}

// renounce gives up what children of this thread could get by executing a program: capabilities, and
// more privileges in general.
func (j *jail) renounce() error {
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break // the kernel has no more capabilities
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	return nil
}

// empty removes everything from the root. QEMU keeps what it has opened.
func (j *jail) empty() error {
	if j.kvm {
		if err := os.Remove(root + kvmDevice); err != nil {
			return fmt.Errorf("empty the jail: %w", err)
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("empty the jail: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && err != unix.EINVAL { // EINVAL: no mount
			return fmt.Errorf("empty the jail: unmount %s: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("empty the jail: %w", err)
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("make the jail's root read-only: %w", err)
	}
	return nil
}
