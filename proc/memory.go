package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Memory makes a file in memory that holds content. The file's offset is 0. The kernel frees
// the file when its last descriptor is closed. The name is only shown in /proc. The
// descriptor is closed on exec.
func Memory(name string, content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(content, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("write a file in memory: %w", err)
	}
	return f, nil
}
