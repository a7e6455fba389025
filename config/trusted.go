package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// ReadTrusted reads a file that decides which programs run as root, such as the
// configuration or a key that may sign images. It must be a regular file of at most limit
// bytes that only root, or the calling user, can write.
func ReadTrusted(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not wait if the file is a fifo
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	if err := CheckTrusted(path, st); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return text, err
}

// CheckTrusted returns an error if other users can write the file or directory at path. st
// is its FileInfo.
func CheckTrusted(path string, st fs.FileInfo) error {
	s, ok := st.Sys().(*syscall.Stat_t)
	if ok && st.Mode()&0o022 == 0 && slices.Contains([]int{0, os.Geteuid()}, int(s.Uid)) {
		return nil
	}
	return fmt.Errorf("%s can be written by others than root, and decides what is executed as root: chown root, chmod go-w", path)
}
