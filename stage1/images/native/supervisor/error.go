package supervisor

import (
	"errors"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// gone reports whether an error, of this program or of the kernel, says that a process has
// ended.
func gone(err error) bool { return errors.Is(err, proc.ErrGone) || errors.Is(err, syscall.ESRCH) }
