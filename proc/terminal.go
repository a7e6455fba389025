package proc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// OpenTerminal makes a terminal in the devpts at /dev/pts. flags are flags for the
// master in addition to O_RDWR, O_NOCTTY and O_CLOEXEC.
func OpenTerminal(flags int) (master, slave int, err error) {
	master, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("open /dev/ptmx: %w", err)
	}
	if slave, err = Slave(master); err != nil {
		unix.Close(master)
		return -1, -1, err
	}
	return master, slave, nil
}

// Slave opens the other end of a terminal. It needs only the master, and no path.
func Slave(master int) (int, error) {
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

// MakeRaw makes a terminal pass on every byte, as cfmakeraw(3) does. It returns the mode
// that the terminal had before.
func MakeRaw(tty int) (before *unix.Termios, err error) {
	before, err = unix.IoctlGetTermios(tty, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	t := *before
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	return before, unix.IoctlSetTermios(tty, unix.TCSETS, &t)
}
