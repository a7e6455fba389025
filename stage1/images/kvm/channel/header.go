package channel

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// ProtocolVersion is the version of the messages. Host and agent are built together, so they
// refuse every other one.
const ProtocolVersion = "1"

// Header is the document of a call. Exactly one of Call, Run, Resize, Size, Network
// and PowerOff is set.
type Header struct {
	// Call is a request as in docs/stage1-abi.md, with the guest's paths. Its cgroup and its
	// consoleSocket are absent: the agent makes them.
	Call *abi.Request `json:"call,omitempty"`
	// Streams are the numbers of the data streams for descriptors 0, 1 and 2 of Call, or the
	// number of the one for its terminal.
	Streams []uint32 `json:"streams,omitempty"`
	// Disk is the root of the app of Call. Without it the root is in the share.
	Disk *Disk `json:"disk,omitempty"`
	// Run is the request of `run`, for the supervisor in the guest. It is the first call.
	Run *abi.Request `json:"run,omitempty"`
	// Sysctl are sysctls of the machine's network, which the agent sets before a Call or Run.
	Sysctl map[string]string `json:"sysctl,omitempty"`
	Resize *Resize           `json:"resize,omitempty"`
	Size   *Size             `json:"size,omitempty"`
	// Network is the machine's network as package network describes it.
	Network json.RawMessage `json:"network,omitempty"`
	// PowerOff ends the apps, writes back what the guest has cached, and ends the machine.
	PowerOff bool `json:"powerOff,omitempty"`
}

// Disk is a disk of the machine with a file system.
type Disk struct {
	Serial   string `json:"serial"`
	Type     string `json:"type"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Resize is the new size of the terminal of an app or, with Exec, of an exec.
type Resize struct {
	App    string `json:"app"`
	Exec   string `json:"exec,omitempty"`
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// Size is the size that a machine has now. It gets memory without a message.
type Size struct {
	CPUs int `json:"cpus"` // that are to be online; the others are to be offline
}

// MaxPID is above every pid of a Linux guest.
const MaxPID = 1 << 22

// ParseReady parses the ready line of the agent.
func ParseReady(body []byte) (pid int, err error) {
	var r struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return 0, fmt.Errorf("%w: the ready line: %w", ErrMessage, err)
	}
	if r.PID < 1 || r.PID > MaxPID {
		return 0, fmt.Errorf("%w: the ready line has pid %d", ErrMessage, r.PID)
	}
	return r.PID, nil
}

// ParseExit parses the exit code of a call.
func ParseExit(body []byte) (int, error) {
	code, err := strconv.Atoi(string(body))
	if err != nil || code < 0 || code > 255 || strconv.Itoa(code) != string(body) {
		return 0, fmt.Errorf("%w: exit code %.10q", ErrMessage, body)
	}
	return code, nil
}

// ParseStats returns the document of app/stats as this package understands it, without
// anything else that the agent has sent.
func ParseStats(body []byte) ([]byte, error) {
	var s abi.StatsAnswer
	if err := json.Unmarshal(body, &s); err != nil {
		return nil, fmt.Errorf("%w: statistics: %w", ErrMessage, err)
	}
	for _, p := range s.Processes {
		if p.PID < 1 || p.PID > MaxPID {
			return nil, fmt.Errorf("%w: statistics with pid %d", ErrMessage, p.PID)
		}
	}
	text, err := json.Marshal(s)
	if err == nil && len(text) > abi.MaxAppStats {
		err = fmt.Errorf("%w: statistics of %d bytes", ErrMessage, len(text))
	}
	return text, err
}
