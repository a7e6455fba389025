package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// aheadKB is how much the kernel reads ahead in a root, and around a page of a program, in KiB: by default 128. An app without
// memory loses the pages of its program, and each that it needs again brought thirty others, which count as
// reclaimed when they go. So the kernel saw progress, and killed nobody for minutes.
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
