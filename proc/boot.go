package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// bootIDFile is the file of a procfs with the id of this boot.
const bootIDFile = "sys/kernel/random/boot_id"

// boot is computed by the first call of BootID.
var boot struct {
	once sync.Once
	id   string
	err  error
}

// BootID returns the kernel's random id of this boot. It is read once.
func BootID() (string, error) {
	boot.once.Do(func() {
		b, err := readBootID()
		if err != nil {
			boot.err = fmt.Errorf("boot id: %w", err)
		}
		boot.id = strings.TrimSpace(string(b))
	})
	return boot.id, boot.err
}

// readBootID reads the file from /proc or, if /proc is mounted with subset=pid, or a part of it is covered, from
// a procfs that is mounted nowhere.
func readBootID() ([]byte, error) {
	b, err := os.ReadFile("/proc/" + bootIDFile)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	procfs, ownErr := detachedProcfs()
	if ownErr != nil {
		return nil, fmt.Errorf("%w; nor can another procfs be mounted: %w", err, ownErr)
	}
	defer unix.Close(procfs)
	fd, err := unix.Openat(procfs, bootIDFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: bootIDFile + " of a new procfs", Err: err}
	}
	defer unix.Close(fd)
	var buf [64]byte // longer than the file
	n, err := unix.Read(fd, buf[:])
	return buf[:max(0, n)], err
}

// detachedProcfs mounts a procfs nowhere, and returns its root.
func detachedProcfs() (int, error) {
	fsfd, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	return fd, os.NewSyscallError("fsmount", err)
}

// CheckProcfs returns an error if /proc has the processes of another PID namespace than this process's. Then the pids
// there are other processes'.
func CheckProcfs() error {
	self, err := os.Readlink("/proc/self")
	if err == nil && self == strconv.Itoa(os.Getpid()) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return errors.New("/proc is not that of containerd's PID namespace: mount a procfs there (unshare(1) does, with --mount-proc)")
}
