package supervisor

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// failure is an error with an exit code of the ABI.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

// notFound returns the error for an app or exec that does not exist or has ended.
func notFound(format string, args ...any) error {
	return &failure{abi.ExitNotFound, fmt.Sprintf(format, args...)}
}

// precondition returns the error for an app in another state.
func precondition(format string, args ...any) error {
	return &failure{abi.ExitFailedPrecondition, fmt.Sprintf(format, args...)}
}

// Unsupported returns the error for a field of the request that cannot be honoured.
func Unsupported(format string, args ...any) error {
	return &failure{abi.ExitNotImplemented, fmt.Sprintf(format, args...)}
}

// codeOf returns the exit code of an entrypoint that ends with err.
func codeOf(err error) int {
	if err == nil {
		return 0
	}
	var f *failure
	if errors.As(err, &f) {
		return f.code
	}
	var c *container.Error
	if errors.As(err, &c) {
		return c.Code
	}
	return 1
}

// gone reports whether an error, of this program or of the kernel, says that a process has
// ended.
func gone(err error) bool { return errors.Is(err, proc.ErrGone) || errors.Is(err, syscall.ESRCH) }
