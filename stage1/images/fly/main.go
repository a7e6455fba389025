// Command fly is the stage1 that isolates nothing: a chroot that has the host's /dev, /proc
// and /sys, like rkt's image of that name. It can be called as in interface version 7 or,
// without a request document, as in version 6. In both cases the pod's manifest describes
// the program to run.
package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Exit codes: exitUnfit and exitMisused are those of rkt's programs for a request that they
// cannot fulfil and for unknown arguments. exitGone is version 7's for a process that has
// ended.
const (
	exitUnfit   = 254
	exitMisused = 2
	exitGone    = 5
)

// failure is an error with an exit code of its own.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func misused(format string, args ...any) error {
	return &failure{exitMisused, fmt.Sprintf(format, args...)}
}

func main() {
	// Credentials and namespaces belong to a thread, and the thread that sets them must
	// execute the program.
	runtime.LockOSThread()
	err := call(filepath.Base(os.Args[0]), os.Args[1:])
	if err == nil {
		return
	}
	complain(err)
	code := exitUnfit
	if f := (*failure)(nil); errors.As(err, &f) {
		code = f.code
	}
	os.Exit(code)
}

func call(entrypoint string, args []string) error {
	if err := keepToOurselves(); err != nil {
		return err
	}
	switch {
	case len(args) > 0 && args[0] == childArgument:
		return child()
	case entrypoint == "run":
		return run(args)
	case entrypoint == "enter":
		return enter(args)
	case entrypoint == "stop":
		return stop(args)
	case entrypoint == "gc": // a pod has nothing outside its directory
		return nil
	}
	return misused("there is no entrypoint %s", entrypoint)
}

// descriptor returns the number in an environment variable, or -1.
func descriptor(variable string) int {
	fd, err := strconv.Atoi(os.Getenv(variable))
	if err != nil {
		return -1
	}
	return fd
}

// keepToOurselves marks all descriptors that are not the app's as closed on exec. The lock
// stays open in the app, because no other process has it open.
func keepToOurselves() error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors close-on-exec: %w", err)
	}
	lock := descriptor("RKT_LOCK_FD")
	if lock < 0 {
		return nil
	}
	if _, err := unix.FcntlInt(uintptr(lock), unix.F_SETFD, 0); err != nil {
		return fmt.Errorf("keep the lock: %w", err)
	}
	return nil
}

// complain writes the error of a call to the error pipe, or to stderr.
func complain(err error) {
	fd := descriptor("RKT_ERROR_FD")
	if fd < 0 {
		fd = 2
	}
	_, _ = unix.Write(fd, []byte(err.Error()+"\n"))
}

// ready reports a process to stage 0, if stage 0 has passed a descriptor for that. In the
// rkt ABI a file reports it.
func ready(pid int) error {
	fd := descriptor("RKT_READY_FD")
	if fd < 0 {
		return nil
	}
	start, err := proc.StartTime(pid) // fails if an exec has already ended
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, fmt.Appendf(nil, "{\"pid\": %d, \"starttime\": %d}\n", pid, start))
	return err
}

// stop signals the app or, if the app has ended, the processes that it has left in its
// process group.
func stop(args []string) error {
	sig := syscall.SIGTERM
	if len(args) > 0 && args[0] == "--force" {
		sig, args = syscall.SIGKILL, args[1:]
	}
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		return misused("usage: stop [--force] UUID")
	}
	pid, err := readNumber("pid")
	if err != nil {
		return nil // run has not come that far
	}
	start, err := startTime()
	if err != nil || start == 0 {
		return err
	}
	err = proc.Signal(pid, start, sig)
	if !errors.Is(err, proc.ErrGone) {
		return err // not the group: if `run` has joined another group, it has processes that are not the app's
	}
	group, err := readNumber("pgid")
	if err != nil {
		return nil
	}
	if _, err := proc.StartTime(group); group == pid && err == nil {
		return nil // another process has the pid, so the app has left no group: as long as one exists, its number is no new pid
	}
	if err := syscall.Kill(-group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal the process group %d: %w", group, err)
	}
	return nil
}

// startTime returns the start time of the app, or 0 if the app belongs to another boot of the host.
func startTime() (start uint64, err error) {
	text, err := os.ReadFile("born")
	if err != nil {
		return 0, err
	}
	now, err := proc.BootID()
	if err != nil {
		return 0, err
	}
	var boot string
	if _, err := fmt.Sscanf(string(text), "%d %s", &start, &boot); err != nil {
		return 0, fmt.Errorf("born: %q: %w", text, err)
	}
	if boot != now {
		return 0, nil
	}
	return start, nil
}

func readNumber(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err == nil && n <= 1 {
		err = fmt.Errorf("%s holds %d", file, n)
	}
	return n, err
}
