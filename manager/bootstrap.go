package manager

import (
	"errors"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/config"
	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// Bootstrap is all that a server knows before its first call. `start` fills it in and
// passes it to the server.
type Bootstrap struct {
	Namespace string `json:"namespace"`
	ID        string `json:"id"`    // of the container or sandbox that `start` was called for
	Group     string `json:"group"` // that this server serves
	// Stage1 is the choice of `start`, and Asked the reasons for it. `start` does not know
	// the annotations of a sandbox, because a sandbox has no config.json.
	Stage1  config.Choice `json:"stage1"`
	Asked   config.Ask    `json:"asked"`
	Address string        `json:"address"`
	// TTRPCAddress is the socket that events are sent to.
	TTRPCAddress      string `json:"ttrpcAddress"`
	ContainerdVersion string `json:"containerdVersion,omitempty"` // empty before 2.3
	LogLevel          string `json:"logLevel"`                    // trace, debug, info, warn, error, fatal or panic
	Socket            string `json:"socket"`                      // path of the server's socket
	// Cgroups are the cgroups of `start`, by controller, which are also containerd's. The
	// server may be in others, and so may containerd after a restart.
	Cgroups map[string]string `json:"cgroups"`
	// Extensions are messages for the runtime. The first one has the runtime's options, if
	// there are any. Create requests repeat the options.
	Extensions []early.Extension `json:"extensions,omitempty"`
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

// request has the parameters of a `start`.
type request struct {
	Bootstrap
	cgroup string // cgroup of the server; empty: containerd's own
}

func newRequest(r *early.Request) *request {
	return &request{Bootstrap: Bootstrap{
		Namespace:         r.Namespace,
		ID:                r.ID,
		Address:           r.Address,
		TTRPCAddress:      r.TTRPCAddress,
		ContainerdVersion: r.ContainerdVersion,
		LogLevel:          r.LogLevel,
		Extensions:        r.Extensions,
	}}
}
