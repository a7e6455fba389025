package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Memory returns a file in memory with a content, to be read from its start. The kernel
// frees the file with its last descriptor. The name shows in /proc only. The descriptor is
// closed on exec.
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
