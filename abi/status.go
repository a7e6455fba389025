package abi

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// StatusDir is the directory of exit records, relative to the pod directory.
const StatusDir = "stage1/rootfs/rkt/status"

// StatusPath returns the status file of an app, or of one of its execs, inside
// the directory StatusDir of a pod.
func StatusPath(dir, app, exec string) string {
	if exec == "" {
		return filepath.Join(dir, app)
	}
	return filepath.Join(dir, app+".exec", exec)
}

// Status says how a process ended. The file rkt/status/APP has the lines below. Only the
// first one is required: the exit code as a shell would show it.
//
//	137
//	signal=9
//	time=1732159865.123456789
type Status struct {
	Code   int       // 0 to 255; 128 + Signal when a signal ended it
	Signal int       // 0 when it exited by itself
	Time   time.Time // when it was reaped
}

// Format renders the status file.
func (s Status) Format() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n", s.Code)
	if s.Signal != 0 {
		fmt.Fprintf(&b, "signal=%d\n", s.Signal)
	}
	fmt.Fprintf(&b, "time=%s\n", formatTime(s.Time))
	return b.Bytes()
}

// ErrStatus is the error for a status file that does not hold a status.
var ErrStatus = errors.New("not an exit status")

// ParseStatus parses a status file. If the file has no time, it uses mtime: a stage1
// written in shell may leave the time out.
func ParseStatus(b []byte, mtime time.Time) (Status, error) {
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	code, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || code < 0 || code > 255 {
		return Status{}, fmt.Errorf("%w: first line %.40q is not a number from 0 to 255", ErrStatus, lines[0])
	}
	s := Status{Code: code, Time: mtime}
	for _, line := range lines[1:] {
		key, value, _ := strings.Cut(line, "=")
		if key == "code" {
			continue // the code is in the first line
		}
		if err := s.set(key, value); err != nil {
			return Status{}, err
		}
	}
	return s, nil
}

// formatTime renders a time as SECONDS.NANOSECONDS since 1970, as `date +%s.%N` does.
func formatTime(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }

// maxTime is the first second of the year 10000, which RFC 3339 cannot express.
const maxTime = 253402300800

func parseTime(v string) (time.Time, error) {
	sec, frac, _ := strings.Cut(v, ".")
	s, err := strconv.ParseInt(sec, 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	if s < 0 || s >= maxTime {
		return time.Time{}, strconv.ErrRange
	}
	if len(frac) > 9 {
		frac = frac[:9]
	}
	n, err := strconv.ParseUint((frac + "000000000")[:9], 10, 32)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(s, int64(n)), nil
}

// MaxStatus is the size up to which a record is read. A stage1 has written it, or an app of an image of rkt's.
const MaxStatus = 4096

// ReadStatus reads the status of an app or exec from the directory StatusDir of a pod.
// The error is fs.ErrNotExist until the process has ended.
func ReadStatus(dir, app, exec string) (Status, error) {
	pod, below := split(dir)
	text, mtime, err := ReadBelow(pod, StatusPath(below, app, exec), MaxStatus)
	if err != nil {
		return Status{}, err
	}
	s, err := ParseStatus(text, mtime)
	if err != nil {
		return Status{}, fmt.Errorf("%s: %w", StatusPath(dir, app, exec), err)
	}
	return s, nil
}

// split divides the path of a directory of records into that of the pod and StatusDir, in which links are not followed.
func split(dir string) (pod, below string) {
	dir = filepath.Clean(dir)
	if pod, ok := strings.CutSuffix(dir, StatusDir); ok && (pod == "" || strings.HasSuffix(pod, "/")) {
		return filepath.Clean(pod), StatusDir
	}
	return dir, "."
}

// in calls f with a descriptor of the directory in which the record of an app or exec is, and the record's name there.
func in(op, dir, app, exec string, f func(fd int, name string) error) error {
	pod, below := split(dir)
	path := StatusPath(below, app, exec)
	err := inDir(pod, func(base int) error {
		fd, err := OpenAt(base, filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return f(fd, filepath.Base(path))
	})
	if err != nil {
		return &os.PathError{Op: op, Path: StatusPath(dir, app, exec), Err: err}
	}
	return nil
}

// WriteStatus records an exit by rename, so that a reader sees the whole record or
// none. It writes to the file that ReserveStatus has made, if there is one.
func WriteStatus(dir, app, exec string, s Status) error {
	if exec != "" {
		err := in("mkdir", dir, app+".exec", "", func(fd int, name string) error {
			if err := unix.Mkdirat(fd, name, 0o755); err != unix.EEXIST {
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return in("write", dir, app, exec, func(fd int, name string) error {
		if err := overwrite(fd, spareOf(name), s.Format()); err != nil {
			return err
		}
		return again(func() error { return unix.Renameat(fd, spareOf(name), fd, name) })
	})
}

// overwrite makes text the content of a file. It does not use O_TRUNC, which would free a
// reserved block. An os.File takes twice as many system calls.
func overwrite(dir int, name string, text []byte) error {
	var fd int
	err := again(func() (err error) {
		fd, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err == unix.EEXIST {
		fd, err = openFile(dir, name, unix.O_WRONLY)
	}
	if err != nil {
		return err
	}
	for rest := text; len(rest) > 0 && err == nil; {
		var n int
		err = again(func() (err error) {
			n, err = unix.Write(fd, rest)
			return err
		})
		rest = rest[max(n, 0):]
	}
	if err == nil {
		err = again(func() error { return unix.Ftruncate(fd, int64(len(text))) })
	}
	return errors.Join(err, unix.Close(fd))
}

// again repeats a system call that a signal interrupts.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// reserved is the size of a spare record: more than any record has.
const reserved = 64

// ReserveStatus makes a spare file for the record of an app's exit. The file has an inode,
// a block and an entry in the directory, so that the record can be written on a full disk.
func ReserveStatus(dir, app string) error {
	return in("reserve", dir, app, "", func(fd int, name string) error { return overwrite(fd, spareOf(name), make([]byte, reserved)) })
}

// spareOf returns the name of the file to which a record is written before it is renamed.
func spareOf(name string) string { return "." + name + ".spare" }
