package fork

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func (b *becoming) layTerminal(g *Program, s *sheet) (err error) {
	b.terminal = true
	if b.terminals, err = s.text("/dev/pts"); err != nil {
		return err
	}
	if b.multiplex, err = s.text("ptmx"); err != nil {
		return err
	}
	b.terminalAt = [2]unix.OpenHow{
		{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS},
		{
			Flags:   unix.O_RDWR | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
		},
	}
	if g.Size != nil {
		b.sized, b.size = true, *g.Size
	}
	return nil
}

// openTerminal makes the terminal and sends its master to the parent. It does not open
// /dev/ptmx, which could be any file of the app or its image. In a devpts no process can make
// or rename a file, so a file that is found there without crossing a mount is the kernel's.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) openTerminal(b *becoming) {
	dir, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, atCWD, uintptr(unsafe.Pointer(b.terminals)),
		uintptr(unsafe.Pointer(&b.terminalAt[0])), unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		l.fail(stepTerminal, errno, 0)
	}
	l.must(stepTerminal, unix.SYS_FSTATFS, dir, uintptr(unsafe.Pointer(&b.fs)), 0)
	l.must(stepTerminal, unix.SYS_FSTAT, dir, uintptr(unsafe.Pointer(&b.stat)), 0)
	const rootInode = 1
	if b.fs.Type != unix.DEVPTS_SUPER_MAGIC || b.stat.Ino != rootInode {
		l.fail(stepTerminal, unix.ENOTTY, 0)
	}
	master, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, dir, uintptr(unsafe.Pointer(b.multiplex)),
		uintptr(unsafe.Pointer(&b.terminalAt[1])), unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		l.fail(stepTerminal, errno, 0)
	}
	l.must(stepTerminal, unix.SYS_IOCTL, master, unix.TIOCSPTLCK, uintptr(unsafe.Pointer(&b.unlock)))
	slave := l.must(stepTerminal, unix.SYS_IOCTL, master, unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if b.sized {
		l.must(stepTerminal, unix.SYS_IOCTL, master, unix.TIOCSWINSZ, uintptr(unsafe.Pointer(&b.size)))
	}
	l.hand(terminal, master, stepTerminal)
	for fd := range uintptr(l.kept) {
		l.must(stepTerminal, unix.SYS_DUP3, slave, fd, 0)
	}
}
