package channel

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// ProtocolVersion is the version of the messages. Host and agent are built together, so they
// refuse every other one.
const ProtocolVersion = "5"

// Null is the number of no stream.
const Null = 0

// Header is the document of a call. Exactly one of Call, Run, Resize, Size, Users,
// Network, Clock and PowerOff is set.
type Header struct {
	// Call is a request as in docs/stage1-abi.md, with the guest's paths. Its cgroup and its
	// consoleSocket are absent: the agent makes them.
	Call *abi.Request `json:"call,omitempty"`
	// Streams are the numbers of the data streams for descriptors 0, 1 and 2 of Call, or the
	// number of the one for its terminal. Null stands for the guest's /dev/null.
	Streams []uint32 `json:"streams,omitempty"`
	// Root is the root of the app of Call. Without it the root is in the share.
	Root *Root `json:"root,omitempty"`
	// Volumes are the block devices of the app of Call.
	Volumes []Volume `json:"volumes,omitempty"`
	// Shm is the /dev/shm that the app of Call shares with others.
	Shm *Shm `json:"shm,omitempty"`
	// Run is the request of `run`, for the supervisor in the guest. It is the first call but Users.
	Run *abi.Request `json:"run,omitempty"`
	// Sysctl are sysctls of the machine's network, which the agent sets before a Call or Run.
	Sysctl map[string]string `json:"sysctl,omitempty"`
	Resize *Resize           `json:"resize,omitempty"`
	Size   *Size             `json:"size,omitempty"`
	// Users has the agent make the user namespace of the pod, once, and a network namespace that belongs to
	// it, to which the machine's network moves.
	Users *Mappings `json:"users,omitempty"`
	// Network is the machine's network as package network describes it.
	Network json.RawMessage `json:"network,omitempty"`
	// Clock asks for the machine's time, or changes it. The answer is a Clock with the time.
	Clock *Clock `json:"clock,omitempty"`
	// PowerOff ends the apps, writes back what the guest has cached, and ends the machine.
	PowerOff bool `json:"powerOff,omitempty"`
}

// Mappings are those of a user namespace.
type Mappings struct {
	UIDs []abi.IDMapping `json:"uids"`
	GIDs []abi.IDMapping `json:"gids"`
}

// System returns the mappings as package syscall has them.
func (m *Mappings) System() (uids, gids []syscall.SysProcIDMap) {
	return systemMappings(m.UIDs), systemMappings(m.GIDs)
}

func systemMappings(from []abi.IDMapping) (to []syscall.SysProcIDMap) {
	for _, m := range from {
		to = append(to, syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)})
	}
	return to
}

// Root is the root of an app that is made of disks. They are mounted by their numbers below a directory.
type Root struct {
	Disks []Disk `json:"disks"`
	// Overlay is made of several disks. One disk needs none.
	Overlay *abi.Mount `json:"overlay,omitempty"`
}

// Path returns the path of the root.
func (r *Root) Path(app string) string {
	name := "0"
	if r.Overlay != nil {
		name = "root"
	}
	return filepath.Join(GuestDisks, app, name)
}

// Disk is a disk of the machine with a file system.
type Disk struct {
	Serial   string `json:"serial"`
	Type     string `json:"type"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}

// Volume is a block device of an app. It is a disk of the machine.
type Volume struct {
	Serial string `json:"serial"`
	// Node is the path of the node that the agent makes, with this mode and these owners. Mounts of the
	// app's spec have it as their source.
	Node string `json:"node"`
	Mode uint32 `json:"mode"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	// Major and Minor are the numbers of the device on the host, by which rules of access name it.
	Major int64 `json:"major"`
	Minor int64 `json:"minor"`
}

// Shm is a tmpfs that the agent mounts for the first app that has it. It stays until the machine ends.
type Shm struct {
	Path string `json:"path"`
	Size uint64 `json:"size"` // in bytes
	Mode uint32 `json:"mode"`
}

// NodeOf returns the path of the node of an app's volume.
func NodeOf(app string, volume int) string {
	return filepath.Join(GuestNodes, app, strconv.Itoa(volume))
}

// NamesBlocks reports whether a rule of access is for block devices with a number of the host. Other rules
// mean the same in every kernel.
func NamesBlocks(r *specs.LinuxDeviceCgroup) bool {
	return r.Type == "b" && (numbered(r.Major) || numbered(r.Minor))
}

// NamesBoth reports whether a rule of access is for devices of both types with a number.
func NamesBoth(r *specs.LinuxDeviceCgroup) bool {
	return (r.Type == "" || r.Type == "a") && (numbered(r.Major) || numbered(r.Minor))
}

// NamedBy reports whether a rule of access for block devices applies to this one.
func (v *Volume) NamedBy(r *specs.LinuxDeviceCgroup) bool {
	return (!numbered(r.Major) || *r.Major == v.Major) && (!numbered(r.Minor) || *r.Minor == v.Minor)
}

// numbered reports whether a part of a rule is a number. -1 stands for every number, as in runc.
func numbered(n *int64) bool { return n != nil && *n >= 0 }

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

// Clock is the machine's clock.
type Clock struct {
	Time int64 `json:"time,omitempty"` // nanoseconds since 1970; in answers only
	Add  int64 `json:"add,omitempty"`  // nanoseconds by which the clock is to be changed
}

// ParseClock returns the machine's time. Nothing but the machine's clock depends on it.
func ParseClock(body []byte) (time.Time, error) {
	var c Clock
	if err := json.Unmarshal(body, &c); err != nil {
		return time.Time{}, fmt.Errorf("%w: a time: %w", ErrMessage, err)
	}
	return time.Unix(0, c.Time), nil
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
