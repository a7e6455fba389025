package container

import (
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// openConsole makes a terminal in the app's devpts the stdio and controlling
// terminal of this process, and sends its master to the supervisor. With
// mounted it is the app's /dev/console too.
func openConsole(size *specs.Box, mounted *root) error {
	master, err := openMaster()
	if err != nil {
		return err
	}
	defer unix.Close(master)
	slave, err := openSlave(master)
	if err != nil {
		return err
	}
	defer unix.Close(slave)
	if size != nil {
		ws := unix.Winsize{Row: uint16(size.Height), Col: uint16(size.Width)}
		if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &ws); err != nil {
			return fmt.Errorf("set the size of the terminal: %w", err)
		}
	}
	if mounted != nil {
		if err := mountConsole(*mounted, slave); err != nil {
			return fmt.Errorf("mount /dev/console: %w", err)
		}
	}
	if err := send(message{Type: "console"}, master); err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(slave, fd, 0); err != nil {
			return fmt.Errorf("make the terminal descriptor %d: %w", fd, err)
		}
	}
	if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
		return fmt.Errorf("make the terminal the controlling one: %w", err)
	}
	return nil
}

// openMaster opens the multiplexer. What an image puts in its place, to be
// opened with root's rights, is refused.
func openMaster() (int, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a terminal, /dev/ptmx: %w", err)
	}
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err = unix.Fstat(fd, &st); err == nil {
		err = unix.Fstatfs(fd, &fs)
	}
	if err == nil && (st.Rdev != unix.Mkdev(5, 2) || fs.Type != unix.DEVPTS_SUPER_MAGIC) {
		err = errors.New("/dev/ptmx is not the multiplexer of a devpts")
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("open a terminal: %w", err)
	}
	return fd, nil
}

// openSlave opens the other end, by the master alone and not by a path.
func openSlave(master int) (int, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, fmt.Errorf("unlock the terminal: %w", err)
	}
	const flags = unix.O_RDWR | unix.O_NOCTTY | unix.O_CLOEXEC
	slave, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, flags)
	if e != 0 {
		return -1, fmt.Errorf("open the terminal's slave: %w", e)
	}
	return int(slave), nil
}

func mountConsole(r root, slave int) error {
	dev, err := r.open("/dev", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(dev)
	target, err := ensure(dev, "console", true)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return attachCopy(slave, target)
}
