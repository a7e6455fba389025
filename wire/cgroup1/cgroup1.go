// Package cgroup1 has containerd's statistics of a cgroup of version 1, field for field, as package
// wire writes them.
package cgroup1

// Name is the name of Metrics in the URL of an Any.
const Name = "io.containerd.cgroups.v1.Metrics"

// Metrics has all statistics of a cgroup.
type Metrics struct {
	Hugetlb          []*HugetlbStat    `protobuf:"bytes,1"`
	Pids             *PidsStat         `protobuf:"bytes,2"`
	CPU              *CPUStat          `protobuf:"bytes,3"`
	Memory           *MemoryStat       `protobuf:"bytes,4"`
	Blkio            *BlkIOStat        `protobuf:"bytes,5"`
	Rdma             *RdmaStat         `protobuf:"bytes,6"`
	Network          []*NetworkStat    `protobuf:"bytes,7"`
	CgroupStats      *CgroupStats      `protobuf:"bytes,8"`
	MemoryOomControl *MemoryOomControl `protobuf:"bytes,9"`
}

// HugetlbStat is a part of Metrics.
type HugetlbStat struct {
	Usage    uint64 `protobuf:"varint,1"`
	Max      uint64 `protobuf:"varint,2"`
	Failcnt  uint64 `protobuf:"varint,3"`
	Pagesize string `protobuf:"bytes,4"`
}

// PidsStat is a part of Metrics.
type PidsStat struct {
	Current uint64 `protobuf:"varint,1"`
	Limit   uint64 `protobuf:"varint,2"`
}

// CPUStat is a part of Metrics.
type CPUStat struct {
	Usage      *CPUUsage `protobuf:"bytes,1"`
	Throttling *Throttle `protobuf:"bytes,2"`
}

// CPUUsage is a part of Metrics.
type CPUUsage struct {
	Total  uint64   `protobuf:"varint,1"`
	Kernel uint64   `protobuf:"varint,2"`
	User   uint64   `protobuf:"varint,3"`
	PerCPU []uint64 `protobuf:"varint,4"`
}

// Throttle is a part of Metrics.
type Throttle struct {
	Periods          uint64 `protobuf:"varint,1"`
	ThrottledPeriods uint64 `protobuf:"varint,2"`
	ThrottledTime    uint64 `protobuf:"varint,3"`
}

// MemoryStat is a part of Metrics.
type MemoryStat struct {
	Cache                   uint64       `protobuf:"varint,1"`
	RSS                     uint64       `protobuf:"varint,2"`
	RSSHuge                 uint64       `protobuf:"varint,3"`
	MappedFile              uint64       `protobuf:"varint,4"`
	Dirty                   uint64       `protobuf:"varint,5"`
	Writeback               uint64       `protobuf:"varint,6"`
	PgPgIn                  uint64       `protobuf:"varint,7"`
	PgPgOut                 uint64       `protobuf:"varint,8"`
	PgFault                 uint64       `protobuf:"varint,9"`
	PgMajFault              uint64       `protobuf:"varint,10"`
	InactiveAnon            uint64       `protobuf:"varint,11"`
	ActiveAnon              uint64       `protobuf:"varint,12"`
	InactiveFile            uint64       `protobuf:"varint,13"`
	ActiveFile              uint64       `protobuf:"varint,14"`
	Unevictable             uint64       `protobuf:"varint,15"`
	HierarchicalMemoryLimit uint64       `protobuf:"varint,16"`
	HierarchicalSwapLimit   uint64       `protobuf:"varint,17"`
	TotalCache              uint64       `protobuf:"varint,18"`
	TotalRSS                uint64       `protobuf:"varint,19"`
	TotalRSSHuge            uint64       `protobuf:"varint,20"`
	TotalMappedFile         uint64       `protobuf:"varint,21"`
	TotalDirty              uint64       `protobuf:"varint,22"`
	TotalWriteback          uint64       `protobuf:"varint,23"`
	TotalPgPgIn             uint64       `protobuf:"varint,24"`
	TotalPgPgOut            uint64       `protobuf:"varint,25"`
	TotalPgFault            uint64       `protobuf:"varint,26"`
	TotalPgMajFault         uint64       `protobuf:"varint,27"`
	TotalInactiveAnon       uint64       `protobuf:"varint,28"`
	TotalActiveAnon         uint64       `protobuf:"varint,29"`
	TotalInactiveFile       uint64       `protobuf:"varint,30"`
	TotalActiveFile         uint64       `protobuf:"varint,31"`
	TotalUnevictable        uint64       `protobuf:"varint,32"`
	Usage                   *MemoryEntry `protobuf:"bytes,33"`
	Swap                    *MemoryEntry `protobuf:"bytes,34"`
	Kernel                  *MemoryEntry `protobuf:"bytes,35"`
	KernelTCP               *MemoryEntry `protobuf:"bytes,36"`
}

// MemoryEntry is a part of Metrics.
type MemoryEntry struct {
	Limit   uint64 `protobuf:"varint,1"`
	Usage   uint64 `protobuf:"varint,2"`
	Max     uint64 `protobuf:"varint,3"`
	Failcnt uint64 `protobuf:"varint,4"`
}

// MemoryOomControl is a part of Metrics.
type MemoryOomControl struct {
	OomKillDisable uint64 `protobuf:"varint,1"`
	UnderOom       uint64 `protobuf:"varint,2"`
	OomKill        uint64 `protobuf:"varint,3"`
}

// BlkIOStat is a part of Metrics.
type BlkIOStat struct {
	IoServiceBytesRecursive []*BlkIOEntry `protobuf:"bytes,1"`
	IoServicedRecursive     []*BlkIOEntry `protobuf:"bytes,2"`
	IoQueuedRecursive       []*BlkIOEntry `protobuf:"bytes,3"`
	IoServiceTimeRecursive  []*BlkIOEntry `protobuf:"bytes,4"`
	IoWaitTimeRecursive     []*BlkIOEntry `protobuf:"bytes,5"`
	IoMergedRecursive       []*BlkIOEntry `protobuf:"bytes,6"`
	IoTimeRecursive         []*BlkIOEntry `protobuf:"bytes,7"`
	SectorsRecursive        []*BlkIOEntry `protobuf:"bytes,8"`
}

// BlkIOEntry is a part of Metrics.
type BlkIOEntry struct {
	Op     string `protobuf:"bytes,1"`
	Device string `protobuf:"bytes,2"`
	Major  uint64 `protobuf:"varint,3"`
	Minor  uint64 `protobuf:"varint,4"`
	Value  uint64 `protobuf:"varint,5"`
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

// CgroupStats is a part of Metrics.
type CgroupStats struct {
	NrSleeping        uint64 `protobuf:"varint,1"`
	NrRunning         uint64 `protobuf:"varint,2"`
	NrStopped         uint64 `protobuf:"varint,3"`
	NrUninterruptible uint64 `protobuf:"varint,4"`
	NrIoWait          uint64 `protobuf:"varint,5"`
}
