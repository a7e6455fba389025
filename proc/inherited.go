package proc

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Inherited returns the file whose descriptor a variable of the environment names, or nil.
// The descriptor is closed on exec.
func Inherited(variable string) *os.File {
	fd, err := strconv.Atoi(os.Getenv(variable))
	if err != nil || fd < 3 {
		return nil
	}
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), variable)
}
