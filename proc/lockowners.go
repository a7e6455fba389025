package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// LockOwners returns the processes, other than this one, that hold the exclusive flock of a
// directory: those that have the descriptor with which it was taken. It looks at every
// process of the host, so it is only for cases in which no record names the owner.
func LockOwners(dir string) ([]*Process, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var found []*Process
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
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
