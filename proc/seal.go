package proc

import (
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// SealDescriptors marks all descriptors that this process has inherited, except 0, 1 and 2,
// as closed on exec. Without it the programs that this process executes would inherit them,
// because Go only does this for descriptors that it has opened itself. Main functions call
// it first.
func SealDescriptors() {
	const first = 3
	if unix.CloseRange(first, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	open, _ := os.ReadDir("/proc/self/fd") // for Linux before 5.11
	for _, d := range open {
		if fd, err := strconv.Atoi(d.Name()); err == nil && fd >= first {
			unix.CloseOnExec(fd)
		}
	}
}
