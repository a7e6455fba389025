package manager

import (
	"errors"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// Bootstrap is all that a server knows before its first call: what `start` has handed over, and
// what the server has found itself.
type Bootstrap struct {
	// Handover is without annotations. Its Cgroups are the cgroups of `start`, by controller, which
	// are also containerd's. The server may be in others, and so may containerd after a restart.
	early.Handover
	// Stage1 is the choice for the pod, and Asked the reasons for it. `start` does not know
	// the annotations of a sandbox, because a sandbox has no config.json.
	Stage1 config.Choice
	Asked  config.Ask
}

// DropsEnded reports whether the containerd that called `start` is older than 2.4. When such
// a containerd restarts and a task refuses to list its processes, it takes the task for one
// that was never created, and deletes it together with its exit code.
func (b *Bootstrap) DropsEnded() bool {
	major, rest, _ := strings.Cut(strings.TrimPrefix(b.ContainerdVersion, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, err := strconv.Atoi(major)
	y, err2 := strconv.Atoi(minor)
	return errors.Join(err, err2) != nil || x < 2 || x == 2 && y < 4
}
