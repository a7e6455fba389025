package fork

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A child is a copy of its parent, and processes of containers may see it. So the child
// unmaps the memory that it does not need, before anything else: it keeps the code of this
// program, the sheet with its plan, and the part of its stack that it uses.

// maxWritten is the most ranges of variables that a program has.
const maxWritten = 4

// span is a range of addresses.
type span struct{ from, to uintptr }

// layout describes the address space of this process.
type layout struct {
	image   span   // this program: code, constants, variables
	written []span // the part of image with variables
	top     uintptr
}

// ownLayout does not change while this process runs.
var ownLayout = sync.OnceValues(func() (layout, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return layout{}, err
	}
	defer f.Close()
	code := newSheet // any function of this program
	return parseLayout(f, **(**uintptr)(unsafe.Pointer(&code)))
})

// parseLayout reads /proc/self/maps. code is the address of a function of this program.
func parseLayout(maps io.Reader, code uintptr) (l layout, err error) {
	type mapping struct {
		span
		writable bool
		program  bool   // executable, and a file
		file     string // device and inode
		unnamed  bool
	}
	var all []mapping
	own := ""
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 5 {
			return l, fmt.Errorf("a line of /proc/self/maps is %q", lines.Text())
		}
		from, to, _ := strings.Cut(f[0], "-")
		a, err1 := strconv.ParseUint(from, 16, 64)
		b, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			return l, fmt.Errorf("a line of /proc/self/maps is %q: %w", lines.Text(), err)
		}
		if int64(b) <= 0 {
			continue // [vsyscall] is the kernel's
		}
		m := mapping{
			span: span{uintptr(a), uintptr(b)}, writable: strings.Contains(f[1], "w"), program: strings.Contains(f[1], "x") && f[4] != "0",
			file: f[3] + " " + f[4], unnamed: len(f) == 5 && f[4] == "0",
		}
		if m.from <= code && code < m.to {
			own = m.file
		}
		l.top = max(l.top, m.to)
		all = append(all, m)
	}
	if err := lines.Err(); err != nil {
		return l, fmt.Errorf("read /proc/self/maps: %w", err)
	}
	for _, m := range all {
		variables := m.unnamed && m.from == l.image.to // those without a value in the file
		if m.program && m.file != own {
			return l, errors.New("this program has a C library, which the kernel needs to run it: build it with CGO_ENABLED=0")
		}
		if own == "" || m.file != own && !variables {
			continue
		}
		if l.image.to == 0 {
			l.image.from = m.from
		}
		l.image.to = m.to
		if m.writable {
			l.written = append(l.written, m.span)
		}
	}
	if l.image.to == 0 || len(l.written) == 0 || len(l.written) > maxWritten {
		return l, errors.New("/proc/self/maps does not show the memory of this program")
	}
	return l, nil
}

// prepareForget prepares the plan for the child's forget.
func (l *plan) prepareForget(s *sheet) error {
	own, err := ownLayout()
	if err != nil {
		return fmt.Errorf("find the memory that a new process needs: %w", err)
	}
	l.page = uintptr(os.Getpagesize())
	copy(l.written[:], own.written)
	a, b := own.image, s.span()
	if b.from < a.from {
		a, b = b, a
	}
	l.gaps = [3]span{{l.page, a.from}, {a.to, b.from}, {b.to, own.top}}
	return nil
}

// forget unmaps the memory of the parent that the child does not need. Variables of the
// program get the values that they have in its file. The rest of the pages with the used
// part of the stack is overwritten.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) forget() {
	// The stack grows down. Below are the frames of nosplit functions, which the linker limits
	// to 800 bytes. Above are those of forget and child.
	const below, frame, above = 2048, 192, 256
	var here byte
	at := uintptr(unsafe.Pointer(&here))
	stack := span{(at - below) &^ (l.page - 1), (at + above + l.page - 1) &^ (l.page - 1)}
	for i := range l.gaps {
		l.unmap(l.gaps[i].from, min(l.gaps[i].to, stack.from))
		l.unmap(max(l.gaps[i].from, stack.to), l.gaps[i].to)
	}
	for i := range l.written {
		l.reset(l.written[i].from, l.written[i].to)
	}
	for a := stack.from; a < (at-frame)&^7; a += 8 {
		*(*uint64)(unsafe.Add(unsafe.Pointer(&here), int(a-at))) = 0
	}
	for a := (at + above) &^ 7; a < stack.to; a += 8 {
		*(*uint64)(unsafe.Add(unsafe.Pointer(&here), int(a-at))) = 0
	}
	l.scrub()
}

// scrub overwrites the stack next to forget's frame.
//
//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func (l *plan) scrub() {
	var pad [32]uint64
	for i := range pad {
		pad[i] = uint64(l.none)
	}
	l.word = byte(pad[l.none&31]) // so that the compiler keeps the values
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) unmap(from, to uintptr) {
	if from >= to {
		return
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_MUNMAP, from, to-from, 0, 0, 0, 0); errno != 0 {
		l.fail(stepForget, errno, 0)
	}
}

//go:nosplit
//go:norace
//go:nocheckptr
func (l *plan) reset(from, to uintptr) {
	if from >= to {
		return
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED, 0, 0, 0); errno != 0 {
		l.fail(stepForget, errno, 0)
	}
}
