package rktfront

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// sweep kills what an app has left behind in the PID namespace that it shares with
// others. What it has started is in its mount namespace, which mounts is; what has made
// one of its own ends with the pod.
func sweep(mounts *os.File) error {
	defer mounts.Close() // until then no other namespace gets its number
	id, err := mounts.Stat()
	if err != nil {
		return err
	}
	// Whoever was killed starts nobody any more, so that this comes to an end.
	killed := map[int]bool{}
	for found := true; found; {
		found = false
		for _, pid := range processes() {
			if !killed[pid] && killIn(pid, id) {
				killed[pid], found = true, true
			}
		}
	}
	return nil
}

// killIn kills a process that is in a mount namespace.
func killIn(pid int, mounts os.FileInfo) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	there, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return err == nil && os.SameFile(there, mounts) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// processes returns the pids that there are.
func processes() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // as many as can be had
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
