package abi

// StatsAnswer is the answer of app/stats: the statistics of an app that a stage1 with
// OwnResources has counted since the app was added, in bytes and nanoseconds. Fields that
// the stage1 does not count are absent.
type StatsAnswer struct {
	CPU     CPUStats       `json:"cpu,omitzero"`
	Memory  MemoryStats    `json:"memory,omitzero"`
	Pids    PidsStats      `json:"pids,omitzero"`
	IO      []IOStats      `json:"io,omitempty"`
	Network []NetworkStats `json:"network,omitempty"`
	// Processes are the app's processes, with pids that the stage1 itself has given them.
	Processes []ProcessStats `json:"processes,omitempty"`
}

// CPUStats is processor time in nanoseconds, and how often a quota has stopped the app.
type CPUStats struct {
	Usage         uint64 `json:"usage,omitempty"`
	User          uint64 `json:"user,omitempty"`
	Kernel        uint64 `json:"kernel,omitempty"`
	Periods       uint64 `json:"periods,omitempty"`
	Throttled     uint64 `json:"throttled,omitempty"`     // periods
	ThrottledTime uint64 `json:"throttledTime,omitempty"` // nanoseconds
}

// MemoryStats is memory in bytes. A Limit of 0 means that there is none. Clients subtract
// InactiveFile from Usage.
type MemoryStats struct {
	Usage        uint64 `json:"usage,omitempty"`
	Limit        uint64 `json:"limit,omitempty"`
	Max          uint64 `json:"max,omitempty"` // the highest Usage
	InactiveFile uint64 `json:"inactiveFile,omitempty"`
	Anon         uint64 `json:"anon,omitempty"`
	File         uint64 `json:"file,omitempty"`
	SwapUsage    uint64 `json:"swapUsage,omitempty"` // without memory
	OOMKills     uint64 `json:"oomKills,omitempty"`
}

// PidsStats counts processes. A Limit of 0 means that there is none.
type PidsStats struct {
	Current uint64 `json:"current,omitempty"`
	Limit   uint64 `json:"limit,omitempty"`
}

// IOStats counts the input and output of a block device.
type IOStats struct {
	Major      uint64 `json:"major"`
	Minor      uint64 `json:"minor"`
	ReadBytes  uint64 `json:"readBytes,omitempty"`
	WriteBytes uint64 `json:"writeBytes,omitempty"`
	Reads      uint64 `json:"reads,omitempty"`
	Writes     uint64 `json:"writes,omitempty"`
}

// NetworkStats counts what an interface of the app has received and sent.
type NetworkStats struct {
	Name     string       `json:"name"`
	Receive  TrafficStats `json:"receive,omitzero"`
	Transmit TrafficStats `json:"transmit,omitzero"`
}

// TrafficStats has the counters of one direction.
type TrafficStats struct {
	Bytes   uint64 `json:"bytes,omitempty"`
	Packets uint64 `json:"packets,omitempty"`
	Errors  uint64 `json:"errors,omitempty"`
	Dropped uint64 `json:"dropped,omitempty"`
}

// ProcessStats is one process. Exec is the id of the exec that it was started for, if any.
type ProcessStats struct {
	PID  int    `json:"pid"`
	Exec string `json:"exec,omitempty"`
}
