package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrGone says that a process has ended, or that its pid is another process's by now.
var ErrGone error = gone{}

// gone has the method by which errdefs.IsNotFound recognizes an error. This package cannot
// link errdefs, because programs inside a pod link this package.
type gone struct{}

func (gone) Error() string { return "process already finished: not found" }
func (gone) NotFound()     {}

// Stat has fields of /proc/PID/stat.
type Stat struct {
	PID       int
	Parent    int    // 0 if the parent is outside of this PID namespace
	State     byte   // R, S, D, Z, …
	StartTime uint64 // clock ticks since boot
	Ticks     uint64 // clock ticks of processor time, its own and that of the children it has waited for
}

// ReadStat reads the stat of a process. The error unwraps to ErrGone if the process
// does not exist.
func ReadStat(pid int) (Stat, error) {
	var buf [512]byte // longer than the line up to the fields below: the name has 64 bytes, a number 20
	b, err := readOnce("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		// ESRCH: the process was reaped between the open and the read.
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return Stat{}, fmt.Errorf("process %d: %w", pid, ErrGone)
		}
		return Stat{}, err
	}
	s, err := parseStat(b)
	if err != nil {
		return Stat{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return s, nil
}

// readOnce reads a file of /proc that the kernel writes in one piece.
func readOnce(path string, buf []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return buf[:n], nil
}

// parseStat parses the line. The second field is the program's name in parentheses. The
// name may contain spaces and parentheses, so fields are counted from the last closing
// parenthesis.
func parseStat(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("stat %.40q has no program name", string(b))
	}
	// After the name: state (field 3), parent (4), …, processor times (14 to 17), …,
	// start time (22).
	var f [20][]byte
	n := 0
	for field := range bytes.FieldsSeq(b[end+1:]) {
		if n == len(f) {
			break
		}
		f[n] = field
		n++
	}
	if n < len(f) || len(f[0]) != 1 {
		return Stat{}, fmt.Errorf("stat %.40q has %d fields after the name, want %d", string(b), n, len(f))
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil {
		return Stat{}, fmt.Errorf("pid in stat: %w", err)
	}
	parent, err := strconv.Atoi(string(f[1]))
	if err != nil {
		return Stat{}, fmt.Errorf("parent in stat: %w", err)
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		return Stat{}, fmt.Errorf("start time in stat: %w", err)
	}
	s := Stat{PID: pid, Parent: parent, State: f[0][0], StartTime: start}
	for _, field := range f[11:15] { // utime (14), stime, cutime, cstime (17)
		n, err := strconv.ParseUint(string(field), 10, 64)
		if err != nil {
			return Stat{}, fmt.Errorf("processor time in stat: %w", err)
		}
		s.Ticks += n
	}
	return s, nil
}

// StartTime returns when the process was started, in clock ticks since boot. Together with
// the boot id it distinguishes processes that had the same pid.
func StartTime(pid int) (uint64, error) {
	s, err := ReadStat(pid)
	return s.StartTime, err
}

// Parent returns the pid of a process's parent.
func Parent(pid int) (int, error) {
	s, err := ReadStat(pid)
	return s.Parent, err
}
