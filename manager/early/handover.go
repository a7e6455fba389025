package early

import (
	"encoding/json"
	"os"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// ServerProgram is the file name of the program that serves pods and makes the calls that package
// early does not answer. Its number is the version of the contract between `start` and a server: Handover,
// the descriptors below, and the server's report. A change that a `start` or a server of another release
// cannot ignore needs another number, because an upgrade replaces one file after the other.
const ServerProgram = "containerd-shim-rkt-server-1"

// Descriptors that a server inherits. Its descriptors 1 and 2 are the log.
const (
	ListenerFD = 3
	HandoverFD = 4
	ReportFD   = 5
)

// Handover has the parameters that `start` passes to the server that it starts. Fields may be added: a server that
// does not know a field ignores it, and a field that is missing has its zero value.
type Handover struct {
	Namespace    string `json:"namespace"`
	ID           string `json:"id"`    // of the container or sandbox that `start` was called for
	Group        string `json:"group"` // that the server serves
	Bundle       string `json:"bundle"`
	Socket       string `json:"socket"`  // path of the server's socket
	Address      string `json:"address"` // containerd's
	TTRPCAddress string `json:"ttrpcAddress"`
	// ContainerdVersion is empty before 2.3.
	ContainerdVersion string `json:"containerdVersion,omitempty"`
	LogLevel          string `json:"logLevel"` // trace, debug, info, warn, error, fatal or panic
	// Annotations are those of config.json. A sandbox has no config.json.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Extensions are messages for the runtime. The first one has the runtime's options, if
	// there are any. Create requests repeat the options.
	Extensions []Extension `json:"extensions,omitempty"`
	// Cgroups are the cgroups of `start`, by controller, if those of the server are others.
	Cgroups map[string]string `json:"cgroups,omitempty"`
}

// Handover returns the handover of a server for the request, without its group and socket.
func (r *Request) Handover(bundle string, annotations map[string]string) *Handover {
	return &Handover{
		Namespace:         r.Namespace,
		ID:                r.ID,
		Bundle:            bundle,
		Address:           r.Address,
		TTRPCAddress:      r.TTRPCAddress,
		ContainerdVersion: r.ContainerdVersion,
		LogLevel:          r.LogLevel,
		Annotations:       annotations,
		Extensions:        r.Extensions,
	}
}

// file returns a file without a name that has the handover.
func (h *Handover) file() (*os.File, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	return proc.Memory("handover", text)
}
