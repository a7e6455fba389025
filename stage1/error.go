package stage1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// EntrypointError is a call that failed. Its text is for the person who asked
// for the container.
type EntrypointError struct {
	Stage1     string
	Pod        string // UUID; empty without a pod
	Entrypoint abi.Entrypoint
	Code       int           // exit code, or 128 plus the signal; -1 if stage 0 has ended it or it never ran
	Duration   time.Duration // until it failed
	Text       string        // the text from RKT_ERROR_FD, and stage 0's explanation
	Err        error         // what it unwraps to; nil if nothing more is known
}

func (e *EntrypointError) Error() string {
	return fmt.Sprintf("stage1 %s: %s: %s", e.Stage1, e.Entrypoint, e.Text)
}

// LogFields returns the fields of log lines about the error, in addition to those of the app.
func (e *EntrypointError) LogFields() log.Fields {
	fields := log.Fields{"stage1": e.Stage1, "entrypoint": string(e.Entrypoint), "code": e.Code}
	if e.Pod != "" {
		fields["pod"] = e.Pod
	}
	return fields
}

// Unwrap returns errdefs.ErrNotFound, ErrFailedPrecondition or ErrNotImplemented
// for the exit codes 5, 6 and 7.
func (e *EntrypointError) Unwrap() error { return e.Err }

// Describe sets the fields for a call that has ended by itself. words is the
// text that it has written, if any.
func (e *EntrypointError) Describe(exit abi.Status, words string) {
	e.Code, e.Text = exit.Code, words
	switch exit.Code {
	case abi.ExitNotFound:
		e.Err = errdefs.ErrNotFound
	case abi.ExitFailedPrecondition:
		e.Err = errdefs.ErrFailedPrecondition
	case abi.ExitNotImplemented:
		e.Err = errdefs.ErrNotImplemented
	}
	how := ""
	switch {
	case exit.Signal != 0:
		how = fmt.Sprintf("the entrypoint was killed by signal %d (%s)", exit.Signal, syscall.Signal(exit.Signal))
	case exit.Code == 0:
		how = "the entrypoint returned without writing a line like {\"pid\": 4711} to RKT_READY_FD"
	case words == "" && e.Err != nil:
		how = fmt.Sprintf("exit code %d (%v)", exit.Code, e.Err)
	case words == "":
		how = fmt.Sprintf("exit code %d, and nothing written to RKT_ERROR_FD", exit.Code)
	}
	if how != "" && words != "" {
		e.Text = how + ": " + words
	} else if how != "" {
		e.Text = how
	}
}

// ExplainExec explains why an entrypoint could not be executed. The kernel's
// error alone would be taken for an error about the app.
func ExplainExec(path string, err error) error {
	st, statErr := os.Stat(path)
	var why string
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
		why = "the file is missing; is the image's tree mounted there?"
	case errors.Is(err, fs.ErrNotExist):
		why = "its interpreter, the program in its first line or its ELF header, is missing"
	case errors.Is(err, syscall.ENOEXEC):
		why = "it is neither a program nor a script that begins with #!"
	case errors.Is(err, syscall.EACCES) && statErr == nil && !st.Mode().IsRegular():
		why = "it is not a regular file"
	case errors.Is(err, syscall.EACCES) && statErr == nil && st.Mode()&0o111 == 0:
		why = fmt.Sprintf("it is not executable (mode %#o)", st.Mode().Perm())
	case errors.Is(err, syscall.EACCES):
		why = "its file system is mounted noexec, or its interpreter is not executable"
	default:
		return fmt.Errorf("execute %s: %w", path, err)
	}
	return &execError{text: fmt.Sprintf("cannot execute %s: %s", path, why), err: err}
}

type execError struct {
	text string
	err  error
}

func (e *execError) Error() string { return e.text }
func (e *execError) Unwrap() error { return e.err }

// Refused returns an error that names the stage1.
func (s *Stage1) Refused(why string, is error) error {
	return fmt.Errorf("stage1 %s: %s: %w", s.name, why, is)
}

// Invalid returns an error that unwraps to errdefs.ErrInvalidArgument.
func Invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), errdefs.ErrInvalidArgument)
}
