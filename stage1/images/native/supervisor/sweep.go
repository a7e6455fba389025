package supervisor

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// sweep kills what an app has left behind in the PID namespace that it shares with
// others. What it has started is in its mount namespace; what has made one of its own
// ends with the pod.
func (s *Supervisor) sweep(app string) {
	s.mu.Lock()
	a := s.apps[app]
	s.mu.Unlock()
	if a == nil || a.mounts == nil {
		return
	}
	defer a.mounts.Close() // until then no other namespace gets its number
	id, err := namespaceID(fmt.Sprintf("/proc/self/fd/%d", a.mounts.Fd()))
	if err != nil {
		fmt.Fprintf(s.log, "end what app %s has left: %v\n", app, err)
		return
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
}

// killIn kills a process that is in a mount namespace.
func killIn(pid int, mounts nsID) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	there, err := namespaceID(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	return err == nil && there == mounts && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
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
