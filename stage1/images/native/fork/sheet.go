package fork

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sheet is memory for a plan and for everything to which the plan points. It is no part of
// the Go heap, so the child can keep the sheet and forget the heap. Nothing in a sheet
// points to the heap, because the garbage collector does not see it.
type sheet struct {
	memory []byte
	used   int
}

// newSheet makes a sheet for at least size bytes. The kernel provides only the pages that
// are used.
func newSheet(size int) (*sheet, error) {
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, (size+page-1)&^(page-1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("make memory for the plan of a process: %w", err)
	}
	return &sheet{memory: memory}, nil
}

func (s *sheet) close() { _ = unix.Munmap(s.memory) }

func (s *sheet) span() span {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(s.memory)))
	return span{from, from + uintptr(len(s.memory))}
}

// carve returns n zero values on the sheet. Their type has no pointers to the heap.
func carve[T any](s *sheet, n int) []T {
	var t T
	const alignment = 16 // at least that of every type
	size := n * int(unsafe.Sizeof(t))
	at := (s.used + alignment - 1) &^ (alignment - 1)
	s.used = at + size
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(s.memory[at:s.used]))), n)
}

// text puts a string on the sheet, with a null byte at its end.
func (s *sheet) text(v string) (*byte, error) {
	if strings.IndexByte(v, 0) >= 0 {
		return nil, unix.EINVAL
	}
	b := carve[byte](s, len(v)+1)
	copy(b, v)
	return &b[0], nil
}

// texts puts strings on the sheet, and an array of pointers to them which ends with nil.
func (s *sheet) texts(list []string) ([]*byte, error) {
	pointers := carve[*byte](s, len(list)+1)
	for i, v := range list {
		p, err := s.text(v)
		if err != nil {
			return nil, err
		}
		pointers[i] = p
	}
	return pointers, nil
}

// room returns how much of a sheet strings take at most.
func room(list []string) int {
	n := 32
	for _, v := range list {
		n += len(v) + 1 + 16 + 8
	}
	return n
}
