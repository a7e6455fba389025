package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// ofZero is a limit of zero, and what it becomes on each version of cgroups.
type ofZero struct {
	res        *specs.LinuxResources
	controller string
	v1, v2     kernelFile
}

// kernelFile is the file of a cgroup in which the kernel keeps a limit. name is empty if the
// limit has no file on that version of cgroups. want is the file's content; if it is empty, the
// content is that of a cgroup without limits. If refused is set, Create fails with an error that
// contains it, or "-" if that depends on devices of the machine.
type kernelFile struct{ name, want, refused string }

func memoryOf(m specs.LinuxMemory) *specs.LinuxResources { return &specs.LinuxResources{Memory: &m} }
func cpuOf(c specs.LinuxCPU) *specs.LinuxResources       { return &specs.LinuxResources{CPU: &c} }
func blockIOOf(b specs.LinuxBlockIO) *specs.LinuxResources {
	return &specs.LinuxResources{BlockIO: &b}
}

// weightOf sets a weight for a device that need not exist, because nothing is written for
// it.
func weightOf(weight, leaf *uint16) *specs.LinuxResources {
	d := specs.LinuxWeightDevice{Weight: weight, LeafWeight: leaf}
	d.Major, d.Minor = 1, 0
	return blockIOOf(specs.LinuxBlockIO{WeightDevice: []specs.LinuxWeightDevice{d}})
}

// limitsOfZero returns a case for each row of docs/limits.md.
func limitsOfZero() map[string]ofZero {
	signed, unsigned, weight, small := ptr[int64](0), ptr[uint64](0), ptr[uint16](0), ptr[uint32](0)
	return map[string]ofZero{
		"memory.limit":                    {memoryOf(specs.LinuxMemory{Limit: signed}), "memory", kernelFile{name: "memory.limit_in_bytes"}, kernelFile{name: "memory.max"}},
		"memory.reservation":              {memoryOf(specs.LinuxMemory{Reservation: signed}), "memory", kernelFile{name: "memory.soft_limit_in_bytes"}, kernelFile{name: "memory.low"}},
		"memory.swap":                     {memoryOf(specs.LinuxMemory{Swap: signed}), "memory", kernelFile{name: "memory.memsw.limit_in_bytes"}, kernelFile{name: "memory.swap.max"}},
		"memory.kernel":                   {memoryOf(specs.LinuxMemory{Kernel: ptr[int64](1 << 20)}), "memory", kernelFile{name: "memory.kmem.limit_in_bytes"}, kernelFile{}}, //nolint:staticcheck // clients send it
		"memory.kernelTCP":                {memoryOf(specs.LinuxMemory{KernelTCP: signed}), "memory", kernelFile{name: "memory.kmem.tcp.limit_in_bytes"}, kernelFile{}},
		"memory.swappiness":               {memoryOf(specs.LinuxMemory{Swappiness: unsigned}), "memory", kernelFile{name: "memory.swappiness", want: "0"}, kernelFile{refused: "memory.swappiness"}},
		"cpu.shares":                      {cpuOf(specs.LinuxCPU{Shares: unsigned}), "cpu", kernelFile{name: "cpu.shares"}, kernelFile{name: "cpu.weight"}},
		"cpu.quota":                       {cpuOf(specs.LinuxCPU{Quota: signed}), "cpu", kernelFile{name: "cpu.cfs_quota_us"}, kernelFile{name: "cpu.max"}},
		"cpu.period":                      {cpuOf(specs.LinuxCPU{Period: unsigned}), "cpu", kernelFile{name: "cpu.cfs_period_us"}, kernelFile{name: "cpu.max"}},
		"cpu.burst":                       {cpuOf(specs.LinuxCPU{Burst: unsigned}), "cpu", kernelFile{name: "cpu.cfs_burst_us", want: "0"}, kernelFile{name: "cpu.max.burst", want: "0"}},
		"cpu.idle":                        {cpuOf(specs.LinuxCPU{Idle: signed}), "cpu", kernelFile{name: "cpu.idle", want: "0"}, kernelFile{name: "cpu.idle", want: "0"}},
		"cpu.realtimeRuntime":             {cpuOf(specs.LinuxCPU{RealtimeRuntime: signed}), "cpu", kernelFile{name: "cpu.rt_runtime_us"}, kernelFile{}},
		"cpu.realtimePeriod":              {cpuOf(specs.LinuxCPU{RealtimePeriod: unsigned}), "cpu", kernelFile{name: "cpu.rt_period_us"}, kernelFile{}},
		"pids.limit":                      {&specs.LinuxResources{Pids: &specs.LinuxPids{Limit: signed}}, "pids", kernelFile{name: "pids.max", want: "1"}, kernelFile{name: "pids.max", want: "1"}},
		"blockIO.weight":                  {blockIOOf(specs.LinuxBlockIO{Weight: weight}), "blkio", kernelFile{name: "blkio.bfq.weight"}, kernelFile{name: "io.weight"}},
		"blockIO.leafWeight":              {blockIOOf(specs.LinuxBlockIO{LeafWeight: weight}), "blkio", kernelFile{name: "blkio.leaf_weight"}, kernelFile{}},
		"network.classID":                 {&specs.LinuxResources{Network: &specs.LinuxNetwork{ClassID: small}}, "net_cls", kernelFile{name: "net_cls.classid"}, kernelFile{}},
		"blockIO.weightDevice.weight":     {weightOf(weight, nil), "blkio", kernelFile{name: "blkio.bfq.weight_device"}, kernelFile{refused: "-"}},
		"blockIO.weightDevice.leafWeight": {weightOf(nil, weight), "blkio", kernelFile{name: "blkio.leaf_weight_device"}, kernelFile{refused: "-"}},
		"network.priorities.priority": {&specs.LinuxResources{Network: &specs.LinuxNetwork{Priorities: []specs.LinuxInterfacePriority{{Name: "lo"}}}},
			"net_prio", kernelFile{name: "net_prio.ifpriomap", want: "lo 0"}, kernelFile{refused: "network.priorities"}},
		"hugepageLimits.limit": {&specs.LinuxResources{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}}},
			"hugetlb", kernelFile{name: "hugetlb.2MB.limit_in_bytes", want: "0"}, kernelFile{name: "hugetlb.2MB.max", want: "0"}},
		"blockIO.throttleReadBpsDevice.rate": {blockIOOf(specs.LinuxBlockIO{ThrottleReadBpsDevice: []specs.LinuxThrottleDevice{aDisk()}}),
			"blkio", kernelFile{name: "blkio.throttle.read_bps_device"}, kernelFile{refused: "io.max"}},
	}
}

// aDisk returns a device of this machine, because the kernel refuses rules for devices that
// do not exist.
func aDisk() (d specs.LinuxThrottleDevice) {
	files, _ := filepath.Glob("/sys/block/*/dev")
	if len(files) == 0 {
		return d
	}
	text, _ := os.ReadFile(files[0])
	_, _ = fmt.Sscanf(string(text), "%d:%d", &d.Major, &d.Minor)
	return d
}

// controls reports whether the host has a controller of version 1, or on version 2 its
// successor.
func (h *hierarchies) controls(controller string) bool {
	if h.version == 1 {
		return h.roots[controller] != ""
	}
	text, _ := os.ReadFile(filepath.Join(h.roots[""], "cgroup.controllers"))
	return slices.Contains(strings.Fields(string(text)), strings.Replace(controller, "blkio", "io", 1))
}

// requirements.md#C2
func TestLimitsOfZero(t *testing.T) {
	h := needHost(t)
	plain := create(t, "plain", nil)
	for field, c := range limitsOfZero() {
		t.Run(field, func(t *testing.T) {
			f := c.v1
			if h.version == 2 {
				f = c.v2
			}
			if f.refused == "" && !h.controls(c.controller) && limited(c.res)[c.controller] {
				f.refused = strings.TrimPrefix(c.controller, "net_")
			}
			if f.refused == "-" {
				t.Skip("depends on the machine's devices")
			}
			g, err := Maker{}.Create(Path{Spec: base + "/zero"}, c.res)
			if err == nil {
				defer destroy(t, g)
			}
			if (err != nil) != (f.refused != "") || err != nil && !strings.Contains(err.Error(), f.refused) {
				t.Fatalf("%v; want %q", err, f.refused)
			}
			if err != nil || f.name == "" {
				return
			}
			if _, err := os.Stat(filepath.Join(g.Dir(c.controller), f.name)); err != nil || g.Dir(c.controller) == "" {
				t.Skipf("the kernel has no %s", f.name)
			}
			want := f.want
			if want == "" {
				want = read(t, plain, c.controller, f.name)
			}
			if got := read(t, g, c.controller, f.name); got != want {
				t.Errorf("%s is %q, want %q", f.name, got, want)
			}
		})
	}
}

func TestZeroOfRDMAIsSet(t *testing.T) {
	none := uint32(0)
	r, err := convert(&specs.LinuxResources{Rdma: map[string]specs.LinuxRdma{"x": {HcaHandles: &none, HcaObjects: &none}}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if x := r.Rdma["x"]; x.HcaHandles == nil || *x.HcaHandles != 0 || x.HcaObjects == nil || *x.HcaObjects != 0 {
		t.Errorf("%+v", x)
	}
}

// Clients are told of the limits that are not set, and of no others.
func TestTheDocumentOfLimitsOfZeroIsTrue(t *testing.T) {
	if os.Getenv("RKT_TEST_GUEST") != "" {
		t.Skip("the guest has no documents")
	}
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		rows[m[1]] = m[2]
	}
	for _, rdma := range []string{"rdma.hcaHandles", "rdma.hcaObjects"} { // of TestZeroOfRDMAIsSet
		if rows[rdma] != "set" {
			t.Errorf("%s: %q", rdma, rows[rdma])
		}
		delete(rows, rdma)
	}
	for field, c := range limitsOfZero() {
		told := Ignored(c.res)
		switch row := rows[field]; {
		case strings.HasPrefix(row, "not set"):
			if len(told) != 1 || !strings.HasPrefix(told[0], "linux.resources."+field+": ") || c.v1.want != "" {
				t.Errorf("%s: it is told %q, and the file is to be %+v", field, told, c.v1)
			}
		case strings.HasPrefix(row, "set"):
			if len(told) != 0 || c.v1.want == "" && field != "blockIO.throttleReadBpsDevice.rate" {
				t.Errorf("%s: it is told %q, and the file is to be %+v", field, told, c.v1)
			}
		default:
			t.Errorf("%s: the document says %q", field, row)
		}
		delete(rows, field)
	}
	if len(rows) != 0 {
		t.Errorf("rows without a case: %v", rows)
	}
	if told := Ignored(nil); len(told) != 0 {
		t.Errorf("of nothing: %q", told)
	}
}
