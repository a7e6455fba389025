// Package cgroup2 has containerd's statistics of a cgroup of version 2, field for field, as package
// wire writes them.
package cgroup2

// Name is the name of Metrics in the URL of an Any.
const Name = "io.containerd.cgroups.v2.Metrics"

// Metrics has all statistics of a cgroup.
type Metrics struct {
	Pids         *PidsStat      `protobuf:"bytes,1"`
	CPU          *CPUStat       `protobuf:"bytes,2"`
	Memory       *MemoryStat    `protobuf:"bytes,4"`
	Rdma         *RdmaStat      `protobuf:"bytes,5"`
	Io           *IOStat        `protobuf:"bytes,6"`
	Hugetlb      []*HugeTlbStat `protobuf:"bytes,7"`
	MemoryEvents *MemoryEvents  `protobuf:"bytes,8"`
	Network      []*NetworkStat `protobuf:"bytes,9"`
}

// PSIData is a part of Metrics.
type PSIData struct {
	Avg10  float64 `protobuf:"fixed64,1"`
	Avg60  float64 `protobuf:"fixed64,2"`
	Avg300 float64 `protobuf:"fixed64,3"`
	Total  uint64  `protobuf:"varint,4"`
}

// PSIStats is a part of Metrics.
type PSIStats struct {
	Some *PSIData `protobuf:"bytes,1"`
	Full *PSIData `protobuf:"bytes,2"`
}

// PidsStat is a part of Metrics.
type PidsStat struct {
	Current uint64 `protobuf:"varint,1"`
	Limit   uint64 `protobuf:"varint,2"`
}

// CPUStat is a part of Metrics.
type CPUStat struct {
	UsageUsec     uint64    `protobuf:"varint,1"`
	UserUsec      uint64    `protobuf:"varint,2"`
	SystemUsec    uint64    `protobuf:"varint,3"`
	NrPeriods     uint64    `protobuf:"varint,4"`
	NrThrottled   uint64    `protobuf:"varint,5"`
	ThrottledUsec uint64    `protobuf:"varint,6"`
	PSI           *PSIStats `protobuf:"bytes,7"`
	NrBursts      uint64    `protobuf:"varint,8"`
	BurstUsec     uint64    `protobuf:"varint,9"`
}

// MemoryStat is a part of Metrics.
type MemoryStat struct {
	Anon                  uint64    `protobuf:"varint,1"`
	File                  uint64    `protobuf:"varint,2"`
	KernelStack           uint64    `protobuf:"varint,3"`
	Slab                  uint64    `protobuf:"varint,4"`
	Sock                  uint64    `protobuf:"varint,5"`
	Shmem                 uint64    `protobuf:"varint,6"`
	FileMapped            uint64    `protobuf:"varint,7"`
	FileDirty             uint64    `protobuf:"varint,8"`
	FileWriteback         uint64    `protobuf:"varint,9"`
	AnonThp               uint64    `protobuf:"varint,10"`
	InactiveAnon          uint64    `protobuf:"varint,11"`
	ActiveAnon            uint64    `protobuf:"varint,12"`
	InactiveFile          uint64    `protobuf:"varint,13"`
	ActiveFile            uint64    `protobuf:"varint,14"`
	Unevictable           uint64    `protobuf:"varint,15"`
	SlabReclaimable       uint64    `protobuf:"varint,16"`
	SlabUnreclaimable     uint64    `protobuf:"varint,17"`
	Pgfault               uint64    `protobuf:"varint,18"`
	Pgmajfault            uint64    `protobuf:"varint,19"`
	WorkingsetRefault     uint64    `protobuf:"varint,20"`
	WorkingsetActivate    uint64    `protobuf:"varint,21"`
	WorkingsetNodereclaim uint64    `protobuf:"varint,22"`
	Pgrefill              uint64    `protobuf:"varint,23"`
	Pgscan                uint64    `protobuf:"varint,24"`
	Pgsteal               uint64    `protobuf:"varint,25"`
	Pgactivate            uint64    `protobuf:"varint,26"`
	Pgdeactivate          uint64    `protobuf:"varint,27"`
	Pglazyfree            uint64    `protobuf:"varint,28"`
	Pglazyfreed           uint64    `protobuf:"varint,29"`
	ThpFaultAlloc         uint64    `protobuf:"varint,30"`
	ThpCollapseAlloc      uint64    `protobuf:"varint,31"`
	Usage                 uint64    `protobuf:"varint,32"`
	UsageLimit            uint64    `protobuf:"varint,33"`
	SwapUsage             uint64    `protobuf:"varint,34"`
	SwapLimit             uint64    `protobuf:"varint,35"`
	MaxUsage              uint64    `protobuf:"varint,36"`
	SwapMaxUsage          uint64    `protobuf:"varint,37"`
	PSI                   *PSIStats `protobuf:"bytes,38"`
}

// MemoryEvents is a part of Metrics.
type MemoryEvents struct {
	Low          uint64 `protobuf:"varint,1"`
	High         uint64 `protobuf:"varint,2"`
	Max          uint64 `protobuf:"varint,3"`
	Oom          uint64 `protobuf:"varint,4"`
	OomKill      uint64 `protobuf:"varint,5"`
	OomGroupKill uint64 `protobuf:"varint,6"`
}

// RdmaStat is a part of Metrics.
type RdmaStat struct {
	Current []*RdmaEntry `protobuf:"bytes,1"`
	Limit   []*RdmaEntry `protobuf:"bytes,2"`
}

// RdmaEntry is a part of Metrics.
type RdmaEntry struct {
	Device     string `protobuf:"bytes,1"`
	HcaHandles uint32 `protobuf:"varint,2"`
	HcaObjects uint32 `protobuf:"varint,3"`
}

// IOStat is a part of Metrics.
type IOStat struct {
	Usage []*IOEntry `protobuf:"bytes,1"`
	PSI   *PSIStats  `protobuf:"bytes,2"`
}

// IOEntry is a part of Metrics.
type IOEntry struct {
	Major  uint64 `protobuf:"varint,1"`
	Minor  uint64 `protobuf:"varint,2"`
	Rbytes uint64 `protobuf:"varint,3"`
	Wbytes uint64 `protobuf:"varint,4"`
	Rios   uint64 `protobuf:"varint,5"`
	Wios   uint64 `protobuf:"varint,6"`
}

// HugeTlbStat is a part of Metrics.
type HugeTlbStat struct {
	Current  uint64 `protobuf:"varint,1"`
	Max      uint64 `protobuf:"varint,2"`
	Pagesize string `protobuf:"bytes,3"`
	Failcnt  uint64 `protobuf:"varint,4"`
}

// NetworkStat is a part of Metrics.
type NetworkStat struct {
	Name      string `protobuf:"bytes,1"`
	RxBytes   uint64 `protobuf:"varint,2"`
	RxPackets uint64 `protobuf:"varint,3"`
	RxErrors  uint64 `protobuf:"varint,4"`
	RxDropped uint64 `protobuf:"varint,5"`
	TxBytes   uint64 `protobuf:"varint,6"`
	TxPackets uint64 `protobuf:"varint,7"`
	TxErrors  uint64 `protobuf:"varint,8"`
	TxDropped uint64 `protobuf:"varint,9"`
}
