package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// aheadKB is how much the kernel reads ahead in a root, and around a page of a program, in KiB. The default is 128. When an app
// has no memory left, the kernel reclaims the pages of its program, and reads them again when the program needs them. With 128 it
// read some thirty pages for each, and could always reclaim some of them, so it killed no process for half a minute and more.
const aheadKB = "16"

// readLittleAhead has the kernel read little ahead in the file system that is mounted at a path.
func readLittleAhead(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return &os.PathError{Op: "look at", Path: path, Err: err}
	}
	device := fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", unix.Major(st.Dev), unix.Minor(st.Dev))
	return os.WriteFile(device, []byte(aheadKB), 0)
}
