package stage1

import (
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

// EntrypointError is a call that failed. Its text is made for the person who
// asked for the container.
type EntrypointError struct {
	Stage1     string
	Entrypoint abi.Entrypoint
	Code       int           // exit code; -1 if there is none
	Duration   time.Duration // until it failed
	Text       string        // what it wrote to RKT_ERROR_FD
	Reason     string        // what stage 0 has to say, if Text says nothing or too little
}

func (e *EntrypointError) Error() string {
	s := fmt.Sprintf("stage1 %s: %s: ", e.Stage1, e.Entrypoint)
	switch {
	case e.Reason == "":
		return s + e.Text
	case e.Text == "":
		return s + e.Reason
	}
	return s + e.Reason + ": " + e.Text
}

// Unwrap maps the exit codes that have a meaning.
func (e *EntrypointError) Unwrap() error {
	switch e.Code {
	case abi.ExitNotFound:
		return errdefs.ErrNotFound
	case abi.ExitFailedPrecondition:
		return errdefs.ErrFailedPrecondition
	case abi.ExitNotImplemented:
		return errdefs.ErrNotImplemented
	}
	return nil
}
