package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// LockOwners returns the processes, other than this one, that hold the exclusive flock of a
// directory: those that have the descriptor with which it was taken. It looks at every
// process of the host, so it is only for cases in which no record names the owner.
func LockOwners(dir string) ([]*Process, error) {
	dir, err := linkTo(dir)
	if err != nil {
		return nil, err
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []*Process
	for _, entry := range all {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !hasLocked(pid, dir) {
			continue
		}
		p, err := Open(pid, 0)
		if errors.Is(err, ErrGone) {
			continue
		}
		if err != nil {
			return found, fmt.Errorf("find the lock owners of %s: %w", dir, err)
		}
		// Check again: before Open, another process may have had the pid.
		if !hasLocked(pid, dir) {
			_ = p.Close()
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

// linkTo returns the link to a directory in /proc/PID/fd of a process that has it open.
func linkTo(dir string) (string, error) {
	f, err := OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// hasLocked reports whether a process has a directory open and locked. It compares links,
// because a stat of another process's files can block for ever.
func hasLocked(pid int, dir string) bool {
	base := "/proc/" + strconv.Itoa(pid)
	fds, err := os.ReadDir(base + "/fd")
	if err != nil {
		return false
	}
	for _, fd := range fds {
		if link, err := os.Readlink(base + "/fd/" + fd.Name()); err != nil || link != dir {
			continue
		}
		// The file has such lines as "lock:  1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0
		// EOF".
		info, err := os.ReadFile(base + "/fdinfo/" + fd.Name())
		if err == nil && bytes.Contains(info, []byte("FLOCK")) && bytes.Contains(info, []byte("WRITE")) {
			return true
		}
	}
	return false
}
