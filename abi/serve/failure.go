package serve

import (
	"errors"
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// Failure is an error with an exit code of the ABI.
type Failure struct {
	Code int
	Text string
}

// Error returns the text.
func (f *Failure) Error() string { return f.Text }

// NotFound returns the error for an app or exec that does not exist or has ended.
func NotFound(format string, args ...any) error {
	return &Failure{abi.ExitNotFound, fmt.Sprintf(format, args...)}
}

// Precondition returns the error for an app in another state.
func Precondition(format string, args ...any) error {
	return &Failure{abi.ExitFailedPrecondition, fmt.Sprintf(format, args...)}
}

// Unsupported returns the error for a field of the request that the stage1 cannot honour.
func Unsupported(format string, args ...any) error {
	return &Failure{abi.ExitNotImplemented, fmt.Sprintf(format, args...)}
}

// CodeOf returns the exit code of a call that has ended with err: 0 for nil, and 1 for an error
// without a Failure.
func CodeOf(err error) int {
	if err == nil {
		return 0
	}
	if f := (*Failure)(nil); errors.As(err, &f) {
		return f.Code
	}
	return 1
}
