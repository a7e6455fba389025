package supervisor

import (
	"errors"
	"fmt"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// failure is an error with an exit code of the ABI.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// Unsupported returns the error of a call that asks for something that a machine cannot do.
func Unsupported(format string, args ...any) error {
	return &failure{abi.ExitNotImplemented, fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &failure{abi.ExitNotFound, fmt.Sprintf(format, args...)}
}

func precondition(format string, args ...any) error {
	return &failure{abi.ExitFailedPrecondition, fmt.Sprintf(format, args...)}
}

// CodeOf returns the exit code of a call that has ended with err.
func CodeOf(err error) int {
	if err == nil {
		return 0
	}
	if f := (*failure)(nil); errors.As(err, &f) {
		return f.code
	}
	return 1
}
