package fork

import (
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// passwdLines reads lines of passwd(5) byte by byte, until one is of the user.
type passwdLines struct {
	uid    uint32
	field  int    // in the line
	number uint64 // the user of the line
	digits int
	wrong  bool // the line's user is no number
	length int  // of the line
	home   []byte
	n      int  // bytes of home that are used
	long   bool // home is longer
}

// maxLine is the length of a line after which nothing more is read.
const maxLine = 64 << 10

// next takes a byte and reports whether the user's line or a too long one is complete.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (p *passwdLines) next(c byte) (found, over bool) {
	if c == '\n' {
		return p.end(), false
	}
	if p.length++; p.length >= maxLine {
		return false, true
	}
	switch {
	case c == ':':
		p.field++
	case p.field == 2:
		if p.digits++; c < '0' || c > '9' {
			p.wrong = true
		} else if p.number <= math.MaxUint32 {
			p.number = 10*p.number + uint64(c-'0')
		}
	case p.field != 5:
	case p.n < len(p.home):
		p.home[p.n] = c
		p.n++
		p.long = p.long || c == 0 // no variable has a null byte
	default:
		p.long = true
	}
	return false, false
}

// end ends a line, and reports whether it was the user's.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (p *passwdLines) end() bool {
	if p.field >= 5 && p.digits > 0 && !p.wrong && p.number == uint64(p.uid) {
		if p.field == 5 && p.n > 0 && p.home[p.n-1] == '\r' {
			p.n--
		}
		return true
	}
	p.field, p.number, p.digits, p.wrong, p.length, p.n, p.long = 0, 0, 0, false, 0, 0, false
	return false
}

// lookUpHome completes the variable HOME. The file is the image's, so it may be anything,
// for example a fifo without a writer. A user that it does not have is at home in "/".
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) lookUpHome(b *becoming) {
	p := &b.lines
	if !l.findHome(b) {
		p.n, p.long = 0, false
	}
	if p.long {
		l.fail(stepHome, unix.ENAMETOOLONG, 0)
	}
	if p.n == 0 {
		p.home[0], p.n = '/', 1
	}
	b.homeVar[len(homeName)+p.n] = 0
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) findHome(b *becoming) bool {
	fd, _, errno := syscall.RawSyscall6(unix.SYS_OPENAT2, atCWD, uintptr(unsafe.Pointer(b.passwd)),
		uintptr(unsafe.Pointer(&b.passwdOpen)), unix.SizeofOpenHow, 0, 0)
	if errno != 0 {
		return false
	}
	found := l.readHome(b, fd)
	syscall.RawSyscall6(unix.SYS_CLOSE, fd, 0, 0, 0, 0, 0)
	return found
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) readHome(b *becoming, fd uintptr) bool {
	_, _, errno := syscall.RawSyscall6(unix.SYS_FSTAT, fd, uintptr(unsafe.Pointer(&b.stat)), 0, 0, 0, 0)
	if errno != 0 || b.stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	const most = 16 << 20 / len(b.buf) // limits a file that an image supplies
	for range most {
		n, _, errno := syscall.RawSyscall6(unix.SYS_READ, fd, uintptr(unsafe.Pointer(&b.buf)), uintptr(len(b.buf)), 0, 0, 0)
		if errno != 0 || n > uintptr(len(b.buf)) {
			return false
		}
		if n == 0 {
			break
		}
		for _, c := range b.buf[:n] {
			if found, over := b.lines.next(c); found || over {
				return found
			}
		}
	}
	return b.lines.end()
}
