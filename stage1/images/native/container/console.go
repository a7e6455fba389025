package container

import (
	"errors"
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// openConsole makes a terminal in the app's devpts. It becomes the stdio and the
// controlling terminal of this process, and its master is sent to the supervisor. dev is the
// app's /dev. If mounted is set, the terminal also becomes the app's /dev/console.
func openConsole(size *specs.Box, dev int, mounted bool) error {
	master, err := openMaster(dev)
	if err != nil {
		return err
	}
	defer unix.Close(master)
	slave, err := proc.Slave(master)
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
	if mounted {
		if err := doing("mount /dev/console", mountConsole(dev, slave)); err != nil {
			return err
		}
	}
	if err := send(Message{Word: WordConsole}, master); err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(slave, fd, 0); err != nil {
			return fmt.Errorf("make the terminal descriptor %d: %w", fd, err)
		}
	}
	return doing("make the terminal the controlling one", unix.IoctlSetInt(0, unix.TIOCSCTTY, 0))
}

// openMaster opens the multiplexer of the app's devpts, below /dev/pts. It does not open
// /dev/ptmx, which could be any file of the app or its image, while this process still has
// root's rights. In a devpts no process can make or rename a file, so a file that is found
// there without crossing a mount is the kernel's.
func openMaster(dev int) (int, error) {
	dir, err := root{fd: dev}.open("pts", unix.O_DIRECTORY)
	if err != nil {
		return -1, fmt.Errorf("open a terminal, /dev/pts: %w", err)
	}
	defer unix.Close(dir)
	if err := checkRoot(dir, unix.DEVPTS_SUPER_MAGIC, "/dev/pts is not a devpts"); err != nil {
		return -1, fmt.Errorf("open a terminal: %w", err)
	}
	master, err := unix.Openat2(dir, "ptmx", &unix.OpenHow{
		Flags:   unix.O_RDWR | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if errors.Is(err, unix.EXDEV) {
		err = errors.New("something is mounted over it")
	}
	if err != nil {
		return -1, fmt.Errorf("open a terminal, /dev/pts/ptmx: %w", err)
	}
	return master, nil
}

func mountConsole(dev, slave int) error {
	target, err := ensure(dev, "console", true)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	return attachCopy(slave, target)
}
