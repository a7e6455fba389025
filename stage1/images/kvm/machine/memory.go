package machine

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// The directory of the jail's root, and the file in it, that have the guest's memory while QEMU starts.
const (
	memoryDir  = "memory"
	memoryFile = "guest"
)

// memory is the guest's memory: a file, because virtiofsd maps it, too. It is the only one of a tmpfs that is mounted
// nowhere but in QEMU's jail, and there only while QEMU starts.
type memory struct {
	tree *os.File // the detached mount
	file *os.File
}

// mount makes the file visible in a directory.
func (m *memory) mount(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := attach(m.tree, dir); err != nil {
		return fmt.Errorf("mount the guest's memory: %w", err)
	}
	return nil
}

// newMemory makes memory of so many bytes for QEMU's user. The kernel gives it when it is used.
func newMemory(size int64, user int) (*memory, error) {
	m := &memory{}
	if err := m.make(size, user); err != nil {
		m.close()
		return nil, fmt.Errorf("make the guest's memory: %w", err)
	}
	return m, nil
}

func (m *memory) make(size int64, user int) error {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for _, option := range []struct{ key, value string }{
		{"source", "memory"}, {"mode", "0755"}, {"size", strconv.FormatInt(size, 10)}, {"nr_inodes", "3"},
	} {
		if err := unix.FsconfigSetString(fs, option.key, option.value); err != nil {
			return fmt.Errorf("option %s: %w", option.key, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	m.tree = os.NewFile(uintptr(tree), "memory")
	fd, err := unix.Openat(tree, memoryFile, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	m.file = os.NewFile(uintptr(fd), "the guest's memory")
	if err := unix.Fchown(fd, user, user); err != nil {
		return err
	}
	return unix.Ftruncate(fd, size)
}

func (m *memory) close() {
	if m != nil {
		proc.CloseFiles(m.tree, m.file)
	}
}
