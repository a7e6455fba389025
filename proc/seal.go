package proc

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SealDescriptors keeps the descriptors that this process has inherited, but 0, 1 and 2, from
// the programs that it will execute: Go closes only those that it has opened itself. Main
// functions call it first.
func SealDescriptors() {
	const first = 3
	if unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	open, _ := os.ReadDir("/proc/self/fd") // Linux before 5.11
	for _, d := range open {
		if fd, err := strconv.Atoi(d.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
}
