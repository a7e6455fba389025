package rktfront

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// sweep kills the processes that an app has left in a shared PID namespace. It finds them
// by the app's mount namespace, mounts. A process that has made its own mount namespace
// ends with the pod.
func sweep(mounts *os.File) error {
	defer mounts.Close() // until then no other namespace gets this one's inode number
	id, err := mounts.Stat()
	if err != nil {
		return err
	}
	// This loop ends, because a killed process starts no others.
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
	p, err := proc.Open(pid, 0)
	if err != nil {
		return false
	}
	defer p.Close()
	there, err := os.Stat(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return err == nil && os.SameFile(there, mounts) && p.Signal(unix.SIGKILL) == nil
}

// processes returns the pids of all processes.
func processes() []int {
	entries, _ := os.ReadDir("/proc") // with as many entries as can be read
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
