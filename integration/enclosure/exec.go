package enclosure

import (
	"fmt"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Program describes the program of Exec.
type Program struct {
	Path           string
	Args           []string // with the program's name
	Env            []string
	Dir            string
	Stdout, Stderr *os.File // stdin is /dev/null
}

// Exec runs a program in the enclosure, with no descriptors except 0, 1 and 2, and reaps
// all orphaned processes until the program ends. Meanwhile this process must not wait for
// any other child. code is the program's exit code, or 128 plus the number of the signal
// that has killed it.
func Exec(p Program) (code int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	// The program must not inherit descriptors that a shell or make has left open in this
	// process.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return 0, fmt.Errorf("close the descriptors above 2: %w", err)
	}
	pid, err := syscall.ForkExec(p.Path, p.Args, &syscall.ProcAttr{
		Dir:   p.Dir,
		Env:   p.Env,
		Files: []uintptr{null.Fd(), p.Stdout.Fd(), p.Stderr.Fd()},
	})
	if err != nil {
		return 0, fmt.Errorf("execute %s: %w", p.Path, err)
	}
	for {
		var status syscall.WaitStatus
		switch ended, err := syscall.Wait4(-1, &status, 0, nil); {
		case err == syscall.EINTR:
		case err != nil:
			return 0, fmt.Errorf("wait for %s: %w", p.Path, err)
		case ended == pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case ended == pid:
			return status.ExitStatus(), nil
		}
	}
}
