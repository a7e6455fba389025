package supervisor

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// gone reports whether an error, of this program or of the kernel, says that a process has
// ended.
func gone(err error) bool { return errors.Is(err, proc.ErrGone) || errors.Is(err, syscall.ESRCH) }

// explainUserNamespace adds to a failure of app/add that containerd is in a user namespace, if the kernel permits
// something only outside: it makes no device nodes inside.
func explainUserNamespace(err error) error {
	if err == nil || !strings.Contains(err.Error(), syscall.EPERM.Error()) || !proc.InUserNamespace() {
		return err
	}
	return fmt.Errorf("%w: containerd is in a user namespace, where this stage1 cannot make devices; the stage1 oci runs containers there", err)
}
