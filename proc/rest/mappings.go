package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/sys/unix"
)

// survey is what a process needs to know of its memory.
type survey struct {
	anonymous int     // bytes
	program   []pages // unchanged pages of files that this process cannot write
	of        bool    // the last mapping that was read is the last one of program
}

type pages struct{ start, end uintptr }

// takeSurvey reads /proc/self/smaps, line by line, because the memory for all of the text would
// be worth more than what is given back.
func takeSurvey() (survey, error) {
	fd, err := unix.Open("/proc/self/smaps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return survey{}, err
	}
	defer unix.Close(fd)
	return read(func(b []byte) (int, error) {
		n, err := unix.Read(fd, b)
		if n == 0 && err == nil {
			err = io.EOF
		}
		return n, err
	})
}

// read reads the text of smaps.
func read(next func([]byte) (int, error)) (s survey, err error) {
	buf := make([]byte, 0, 4096+256) // longer than any line: a path has up to 4096 bytes
	for {
		n, err := next(buf[len(buf):cap(buf)])
		if err == unix.EINTR {
			continue
		}
		if err == io.EOF && len(buf) == 0 {
			return s, nil
		}
		if err != nil {
			return s, fmt.Errorf("smaps: %w", err)
		}
		buf = buf[:len(buf)+n]
		rest := buf
		for {
			line, after, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				break
			}
			if err := s.add(line); err != nil {
				return s, fmt.Errorf("smaps: %q: %w", line, err)
			}
			rest = after
		}
		buf = buf[:copy(buf, rest)]
		if len(buf) == cap(buf) {
			return s, errors.New("smaps: a line is too long")
		}
	}
}

// add takes a line. Each mapping has a line such as
//
//	00400000-00c00000 r-xp 00001000 fe:00 1234      /usr/bin/program
//
// and lines of its own, such as
//
//	Anonymous:             8 kB
func (s *survey) add(line []byte) error {
	word, rest, _ := bytes.Cut(line, []byte(" "))
	if !bytes.HasSuffix(word, []byte(":")) {
		return s.begin(word, rest)
	}
	if string(word) != "Anonymous:" {
		return nil
	}
	n, err := strconv.Atoi(string(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte(" kB"))))
	s.anonymous += n << 10
	if s.of && n > 0 { // changed, for example by a debugger's breakpoints
		s.program, s.of = s.program[:len(s.program)-1], false
	}
	return err
}

// begin takes the first line of a mapping.
func (s *survey) begin(addresses, rest []byte) error {
	start, end, _ := bytes.Cut(addresses, []byte("-"))
	from, err := strconv.ParseUint(string(start), 16, strconv.IntSize)
	if err != nil {
		return err
	}
	to, err := strconv.ParseUint(string(end), 16, strconv.IntSize)
	if err != nil {
		return err
	}
	mode, rest, _ := bytes.Cut(rest, []byte(" "))
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // the offset
	_, rest, _ = bytes.Cut(rest, []byte(" ")) // the device
	inode, _, _ := bytes.Cut(rest, []byte(" "))
	s.of = len(mode) == 4 && mode[1] == '-' && mode[3] == 'p' && len(inode) > 0 && string(inode) != "0"
	if s.of {
		s.program = append(s.program, pages{uintptr(from), uintptr(to)})
	}
	return nil
}

// unmap unmaps the pages of the program. They stay in the page cache. It ignores errors: a page
// that stays mapped does no harm.
func (s survey) unmap() {
	for _, p := range s.program {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, p.start, p.end-p.start, unix.MADV_DONTNEED)
	}
}
