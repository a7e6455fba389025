package supervisor

import (
	"errors"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
)

// codeOf returns the exit code of an entrypoint that ends with err.
func codeOf(err error) int {
	var failure *serve.Failure
	var c *container.Error
	if !errors.As(err, &failure) && errors.As(err, &c) {
		return c.Code
	}
	return serve.CodeOf(err)
}

// gone reports whether an error, of this program or of the kernel, says that a process has
// ended.
func gone(err error) bool { return errors.Is(err, proc.ErrGone) || errors.Is(err, syscall.ESRCH) }
