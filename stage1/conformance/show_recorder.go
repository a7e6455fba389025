package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// recorderName is the name of the program with which Show replaces an entrypoint.
const recorderName = ".stage1-verify-show"

// jobSuffix follows the path of the recorder in the path of the file with its job.
const jobSuffix = ".json"

// recorderJob names the program that the recorder executes, and the file to which it
// writes.
type recorderJob struct {
	Program string // path of the entrypoint in the image
	To      string // the file; it gets only the first call
}

// record records the call that this process has received, and executes the entrypoint
// with it.
func record(args []string) int {
	fds := ownDescriptors() // before this program opens any
	errors := os.Stderr
	if fd, err := strconv.Atoi(os.Getenv(abi.EnvErrorFD)); err == nil {
		errors = os.NewFile(uintptr(fd), "errors")
	}
	fmt.Fprintf(errors, "rktctl stage1 verify --show: %v\n", recordAs(args, fds))
	return 1
}

func recordAs(args []string, fds []ShownDescriptor) error {
	text, err := os.ReadFile(args[0] + jobSuffix)
	if err != nil {
		return err
	}
	var job recorderJob
	if err := json.Unmarshal(text, &job); err != nil {
		return err
	}
	program := filepath.Join(filepath.Dir(args[0]), job.Program)
	args = append([]string{program}, args[1:]...)
	s := Shown{Args: args, Env: os.Environ(), Descriptors: fds}
	s.Directory, _ = os.Getwd()
	s.Request, _ = os.ReadFile(os.Getenv(abi.EnvRequest))
	s.Process, _ = os.ReadFile(os.Getenv(abi.EnvProcess))
	if text, err = json.Marshal(s); err != nil {
		return err
	}
	if f, err := os.OpenFile(job.To, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err == nil {
		_, err = f.Write(text)
		if err != nil || f.Close() != nil {
			return fmt.Errorf("write %s: %w", job.To, err)
		}
	}
	return syscall.Exec(program, args, os.Environ())
}

// ownDescriptors returns the descriptors that this process has inherited.
func ownDescriptors() []ShownDescriptor {
	var all []ShownDescriptor
	for fd := range 1024 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		d := ShownDescriptor{FD: fd}
		d.File, _ = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		mode, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		d.Access = map[int]string{unix.O_RDONLY: "read", unix.O_WRONLY: "write", unix.O_RDWR: "both"}[mode&unix.O_ACCMODE]
		all = append(all, d)
	}
	return all
}
