package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// limited is a limit, or several that the kernel ties together. Stage 0 sets most limits, and the
// stage1 has to leave them in force: its app's process has to be in the cgroup that has them. A
// stage1 that owns its resources sets those that it declares.
type limited struct {
	name, sentence string
	fields         []string // below /linux/resources
	controller     string
	ask            func(*specs.LinuxResources)
	// with adds what the facts need to the spec. It may be nil.
	with func(*specs.Spec)
	// v1 and v2 are the files of a cgroup that show the limits. Without any, that version has no
	// such limit. Of each row one file must exist, and have its value.
	v1, v2 [][]limitFile
	older  string // what an older OCI runtime writes into the file of v2
	facts  []fact // what a program sees of the limits
	// missing returns what the machine lacks for the check, or "".
	missing func() string
}

// limitFile is a file of a cgroup, and words that it has.
type limitFile struct{ name, want string }

// rows returns rows of one file each.
func rows(files ...limitFile) (all [][]limitFile) {
	for _, f := range files {
		all = append(all, []limitFile{f})
	}
	return all
}

// limits returns all limits but that of memory, whose check has a program exceed it.
func (v *values) limits() []limited {
	return slices.Concat(v.processorLimits(), v.memoryLimits(), v.ioLimits(), v.otherLimits())
}

func (v *values) processorLimits() []limited {
	cpu := func(c specs.LinuxCPU) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.CPU = &c }
	}
	quota, processor := int64(v.quota), v.processor()
	return []limited{
		{name: "cpu-shares", sentence: "the weight of an app's processor time is the spec's", fields: []string{"cpu/shares"}, controller: "cpu",
			ask:   cpu(specs.LinuxCPU{Shares: &v.shares}),
			v1:    rows(limitFile{"cpu.shares", fmt.Sprint(v.shares)}),
			v2:    rows(limitFile{"cpu.weight", fmt.Sprint(cgroups.ConvertCPUSharesToCgroupV2Value(v.shares))}),
			older: fmt.Sprint(1 + (v.shares-2)*9999/262142)}, // Debian 12's runc, 1.1
		{name: "cpu-time", sentence: "the processor time that an app gets in each period is limited", fields: []string{"cpu/quota", "cpu/period"}, controller: "cpu",
			ask: cpu(specs.LinuxCPU{Quota: &quota, Period: &v.period}),
			v1:  rows(limitFile{"cpu.cfs_quota_us", fmt.Sprint(v.quota)}, limitFile{"cpu.cfs_period_us", fmt.Sprint(v.period)}),
			v2:  rows(limitFile{"cpu.max", fmt.Sprintf("%d %d", v.quota, v.period)})},
		{name: "cpu-burst", sentence: "the processor time that an app may save for later is limited", fields: []string{"cpu/burst"}, controller: "cpu",
			ask: cpu(specs.LinuxCPU{Quota: &quota, Period: &v.period, Burst: &v.burst}),
			v1:  rows(limitFile{"cpu.cfs_burst_us", fmt.Sprint(v.burst)}), v2: rows(limitFile{"cpu.max.burst", fmt.Sprint(v.burst)})},
		{name: "cpu-idle", sentence: "an app that is to run only on idle processors does", fields: []string{"cpu/idle"}, controller: "cpu",
			ask: cpu(specs.LinuxCPU{Idle: new(int64(1))}),
			v1:  rows(limitFile{"cpu.idle", "1"}), v2: rows(limitFile{"cpu.idle", "1"})},
		{name: "cpus", sentence: "an app runs on the processors of the spec", fields: []string{"cpu/cpus"}, controller: "cpuset",
			ask: cpu(specs.LinuxCPU{Cpus: processor}),
			v1:  rows(limitFile{"cpuset.cpus", processor}), v2: rows(limitFile{"cpuset.cpus", processor}),
			facts: []fact{is("status Cpus_allowed_list", processor)}, missing: oneProcessor},
		{name: "memory-nodes", sentence: "the memory of an app comes from the nodes of the spec", fields: []string{"cpu/mems"}, controller: "cpuset",
			ask: cpu(specs.LinuxCPU{Mems: "0"}),
			v1:  rows(limitFile{"cpuset.mems", "0"}), v2: rows(limitFile{"cpuset.mems", "0"}),
			facts: []fact{is("status Mems_allowed_list", "0")}},
	}
}

// processor returns a processor that this process may use.
func (v *values) processor() string {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil || set.Count() == 0 {
		return "0"
	}
	nth := int(v.amount) % set.Count()
	for cpu := 0; ; cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		if nth == 0 {
			return strconv.Itoa(cpu)
		}
		nth--
	}
}

func (v *values) memoryLimits() []limited {
	memory := func(m specs.LinuxMemory) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.Memory = &m }
	}
	amount := int64(v.amount) << 20
	swap := amount + 64<<20
	percent := v.amount % 100
	return []limited{
		{name: "memory-reservation", sentence: "memory is reserved for an app", fields: []string{"memory/reservation"}, controller: "memory",
			ask: memory(specs.LinuxMemory{Reservation: &amount}),
			v1:  rows(limitFile{"memory.soft_limit_in_bytes", fmt.Sprint(amount)}), v2: rows(limitFile{"memory.low", fmt.Sprint(amount)})},
		{name: "memory-swap", sentence: "the memory and swap space of an app are limited", fields: []string{"memory/limit", "memory/swap"}, controller: "memory",
			ask: memory(specs.LinuxMemory{Limit: &amount, Swap: &swap}),
			v1:  rows(limitFile{"memory.limit_in_bytes", fmt.Sprint(amount)}, limitFile{"memory.memsw.limit_in_bytes", fmt.Sprint(swap)}),
			v2:  rows(limitFile{"memory.max", fmt.Sprint(amount)}, limitFile{"memory.swap.max", fmt.Sprint(swap - amount)})},
		{name: "memory-swappiness", sentence: "the kernel swaps an app's memory as readily as the spec says", fields: []string{"memory/swappiness"}, controller: "memory",
			ask: memory(specs.LinuxMemory{Swappiness: &percent}), v1: rows(limitFile{"memory.swappiness", fmt.Sprint(percent)})},
		{name: "memory-oom", sentence: "the kernel stops an app that has no memory left, and does not kill it, if the spec says so", fields: []string{"memory/disableOOMKiller"}, controller: "memory",
			ask: memory(specs.LinuxMemory{Limit: &amount, DisableOOMKiller: new(true)}), v1: rows(limitFile{"memory.oom_control", "oom_kill_disable 1"})},
		{name: "memory-tcp", sentence: "the memory of an app's TCP buffers is limited", fields: []string{"memory/kernelTCP"}, controller: "memory",
			ask: memory(specs.LinuxMemory{KernelTCP: &amount}), v1: rows(limitFile{"memory.kmem.tcp.limit_in_bytes", fmt.Sprint(amount)})},
	}
}

func (v *values) ioLimits() []limited {
	disk, weighed := blockDevice(""), blockDevice("[bfq]")
	weight := uint16(v.amount)
	rate := v.amount << 20
	throttles := []specs.LinuxThrottleDevice{{Rate: rate}}
	throttles[0].Major, throttles[0].Minor = disk.major, disk.minor
	weights := []specs.LinuxWeightDevice{{Weight: &weight}}
	weights[0].Major, weights[0].Minor = weighed.major, weighed.minor
	io := func(b specs.LinuxBlockIO) func(*specs.LinuxResources) {
		return func(r *specs.LinuxResources) { r.BlockIO = &b }
	}
	all := []limited{
		{name: "io-weight", sentence: "the weight of an app's input and output is the spec's", fields: []string{"blockIO/weight"}, controller: "blkio",
			ask: io(specs.LinuxBlockIO{Weight: &weight}),
			v1:  [][]limitFile{{{"blkio.bfq.weight", fmt.Sprint(weight)}, {"blkio.weight", fmt.Sprint(weight)}}},
			v2:  [][]limitFile{{{"io.bfq.weight", fmt.Sprint("default ", weight)}, {"io.weight", fmt.Sprint("default ", cgroups.ConvertBlkIOToIOWeightValue(weight))}}}},
		{name: "io-weight-device", sentence: "the weight of an app's input and output on a device is the spec's", controller: "blkio",
			fields: []string{"blockIO/weightDevice/*/major", "blockIO/weightDevice/*/minor", "blockIO/weightDevice/*/weight"},
			ask:    io(specs.LinuxBlockIO{WeightDevice: weights}), missing: weighed.missing,
			v1: rows(limitFile{"blkio.bfq.weight_device", weighed.words(weight)}),
			v2: rows(limitFile{"io.bfq.weight", weighed.words(weight)})},
	}
	for _, kind := range []struct {
		id, what, field, v1, v2 string
		asks                    specs.LinuxBlockIO
	}{
		{"read-bytes", "the bytes that an app reads from a device in a second are", "throttleReadBpsDevice", "read_bps", "rbps", specs.LinuxBlockIO{ThrottleReadBpsDevice: throttles}},
		{"write-bytes", "the bytes that an app writes to a device in a second are", "throttleWriteBpsDevice", "write_bps", "wbps", specs.LinuxBlockIO{ThrottleWriteBpsDevice: throttles}},
		{"reads", "the reads of an app from a device in a second are", "throttleReadIOPSDevice", "read_iops", "riops", specs.LinuxBlockIO{ThrottleReadIOPSDevice: throttles}},
		{"writes", "the writes of an app to a device in a second are", "throttleWriteIOPSDevice", "write_iops", "wiops", specs.LinuxBlockIO{ThrottleWriteIOPSDevice: throttles}},
	} {
		place := "blockIO/" + kind.field + "/*/"
		all = append(all, limited{name: "io-" + kind.id, sentence: kind.what + " limited", controller: "blkio",
			fields: []string{place + "major", place + "minor", place + "rate"}, ask: io(kind.asks), missing: disk.missing,
			v1: rows(limitFile{"blkio.throttle." + kind.v1 + "_device", disk.words(rate)}),
			v2: rows(limitFile{"io.max", disk.words()}, limitFile{"io.max", fmt.Sprint(kind.v2, "=", rate)})})
	}
	return all
}

// blockDisk is a block device of the machine.
type blockDisk struct {
	major, minor int64
	missing      func() string // returns why there is none, or ""
}

// blockDevice returns a block device whose scheduler has a name, or any.
func blockDevice(scheduler string) (d blockDisk) {
	files, _ := filepath.Glob("/sys/block/*/dev")
	for _, f := range files {
		numbers, _ := os.ReadFile(f)
		of, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "queue/scheduler"))
		if _, err := fmt.Sscanf(string(numbers), "%d:%d", &d.major, &d.minor); err == nil && strings.Contains(string(of), scheduler) {
			d.missing = func() string { return "" }
			return d
		}
	}
	d.missing = func() string { return strings.TrimSpace("the machine has no block device " + scheduler) }
	return d
}

// words returns the line of a limit of the device.
func (d *blockDisk) words(values ...any) string {
	return strings.TrimSpace(fmt.Sprintf("%d:%d ", d.major, d.minor) + fmt.Sprint(values...))
}

func (v *values) otherLimits() []limited {
	pids := int64(v.pids)
	pageSize := hugePages()
	huge := v.amount << 30
	class := uint32(v.amount)
	adapter := firstOf("/sys/class/infiniband/*")
	handles := uint32(v.amount)
	return []limited{
		{name: "pids", sentence: "the number of an app's processes is limited", fields: []string{"pids/limit"}, controller: "pids",
			ask: func(r *specs.LinuxResources) { r.Pids = &specs.LinuxPids{Limit: &pids} },
			v1:  rows(limitFile{"pids.max", fmt.Sprint(pids)}), v2: rows(limitFile{"pids.max", fmt.Sprint(pids)}),
			facts: []fact{{"children 200", func(answer string) bool {
				n, err := strconv.Atoi(answer)
				return err == nil && n > 0 && n < int(pids)
			}, fmt.Sprint("fewer than ", pids)}}},
		{name: "devices", sentence: "an app can use the devices that the spec allows, and no others", controller: "devices",
			fields: []string{"devices/*/allow", "devices/*/type", "devices/*/major", "devices/*/minor", "devices/*/access"},
			ask:    v.askDevices, with: v.makeDevices,
			// The devices exist for no driver.
			facts: []fact{is("open "+v.allowed, "ENXIO"), is("open "+v.denied, "EPERM")}},
		{name: "hugepages", sentence: "an app's huge pages are limited", fields: []string{"hugepageLimits/*/pageSize", "hugepageLimits/*/limit"}, controller: "hugetlb",
			ask: func(r *specs.LinuxResources) {
				r.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: pageSize, Limit: huge}}
			},
			v1: rows(limitFile{"hugetlb." + pageSize + ".limit_in_bytes", fmt.Sprint(huge)}), v2: rows(limitFile{"hugetlb." + pageSize + ".max", fmt.Sprint(huge)})},
		{name: "network-class", sentence: "the packets of an app have the class of the spec", fields: []string{"network/classID"}, controller: "net_cls",
			ask: func(r *specs.LinuxResources) { r.Network = &specs.LinuxNetwork{ClassID: &class} }, v1: rows(limitFile{"net_cls.classid", fmt.Sprint(class)})},
		{name: "network-priority", sentence: "the packets of an app have the priority of the spec", fields: []string{"network/priorities/*/name", "network/priorities/*/priority"}, controller: "net_prio",
			ask: func(r *specs.LinuxResources) {
				r.Network = &specs.LinuxNetwork{Priorities: []specs.LinuxInterfacePriority{{Name: "lo", Priority: class}}}
			},
			v1: rows(limitFile{"net_prio.ifpriomap", fmt.Sprint("lo ", class)})},
		{name: "rdma", sentence: "an app's use of an RDMA adapter is limited", fields: []string{"rdma/*/hcaHandles", "rdma/*/hcaObjects"}, controller: "rdma",
			ask: func(r *specs.LinuxResources) {
				r.Rdma = map[string]specs.LinuxRdma{filepath.Base(adapter): {HcaHandles: &handles, HcaObjects: &class}}
			},
			v1:      rows(limitFile{"rdma.max", fmt.Sprintf("hca_handle=%d hca_object=%d", handles, class)}),
			v2:      rows(limitFile{"rdma.max", fmt.Sprintf("hca_handle=%d hca_object=%d", handles, class)}),
			missing: func() string { return map[bool]string{true: "the machine has no RDMA adapter"}[adapter == ""] }},
		{name: "unified", sentence: "the files of an app's cgroup have the values of the spec", fields: []string{"unified/*"}, controller: "memory",
			ask: func(r *specs.LinuxResources) { r.Unified = map[string]string{"memory.high": fmt.Sprint(huge)} },
			v2:  rows(limitFile{"memory.high", fmt.Sprint(huge)})},
	}
}

func firstOf(pattern string) string {
	files, _ := filepath.Glob(pattern)
	if len(files) == 0 {
		return ""
	}
	return files[0]
}

// hugePages returns a size of huge pages, as cgroups name it.
func hugePages() string {
	if firstOf("/sys/kernel/mm/hugepages/hugepages-2048kB") != "" {
		return "2MB"
	}
	return "1GB"
}

// askDevices allows one of the two devices of makeDevices.
func (v *values) askDevices(r *specs.LinuxResources) {
	none := specs.LinuxDeviceCgroup{Allow: false, Access: "rwm"}
	one := specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: new(int64(experimental)), Minor: new(int64(v.amount)), Access: "rw"}
	r.Devices = []specs.LinuxDeviceCgroup{none, one}
}

// experimental is a major number that no driver of a kernel has.
const experimental = 241

// makeDevices gives a program two devices.
func (v *values) makeDevices(s *specs.Spec) {
	for i, path := range []string{v.allowed, v.denied} {
		s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{
			Path: path, Type: "c", Major: experimental, Minor: int64(v.amount) + int64(i), FileMode: new(os.FileMode(0o666)),
		})
	}
}

// limitFileChecks check the limits of limits, one by one.
func limitFileChecks() []Check {
	var all []Check
	for _, l := range draw(0).limits() {
		c := Check{ID: "limit/" + l.name, Level: LevelLimits, Section: "7", Sentence: l.sentence, missing: l.missing, asks: func(s *specs.Spec) { l.asks(s) },
			run: func(ctx context.Context, t *trial) error {
				all := t.values.limits()
				return t.limits(ctx, &all[slices.IndexFunc(all, func(o limited) bool { return o.name == l.name })])
			}}
		for _, f := range l.fields {
			c.Fields = append(c.Fields, "/linux/resources/"+f)
		}
		all = append(all, c)
	}
	return all
}

func (l *limited) asks(s *specs.Spec) {
	if s.Linux.Resources == nil {
		s.Linux.Resources = &specs.LinuxResources{}
	}
	l.ask(s.Linux.Resources)
	if l.with != nil {
		l.with(s)
	}
}

// limits asks for a limit, and compares what the app's cgroup and its program say.
func (t *trial) limits(ctx context.Context, l *limited) error {
	if t.image.Owns(abi.OwnResources) {
		return t.limitsInside(ctx, l)
	}
	if why := l.lacks(); why != "" {
		return &absentError{NoMachine, why}
	}
	h := honoured{fields: l.fields, facts: l.facts}
	a, err := t.wholePod().create(ctx, func(s *specs.Spec) {
		t.observed(s)
		l.asks(s)
	}, append([]string{"linger"}, h.verb()[1:]...)...)
	if errors.Is(err, fs.ErrNotExist) { // of version 2, where stage 0 has first to turn a controller on
		return &absentError{NoMachine, err.Error()}
	}
	if done, err := h.begun(err); done {
		return err
	}
	if len(h.facts) > 0 { // otherwise no program is needed
		must(a.w.Start(ctx, a.id, ""))
		try(h.seen(ctx, a.streams))
	}
	return l.outside(a)
}

// onHost returns the files of the limit on this machine, and the version of its cgroups.
func (l *limited) onHost() (files [][]limitFile, version int) {
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
		return l.v2, 2
	}
	return l.v1, 1
}

// lacks returns what cgroups of this machine lack for the limit, or "".
func (l *limited) lacks() string {
	all, version := l.onHost()
	if len(all) == 0 && len(l.facts) == 0 {
		return fmt.Sprintf("cgroups of version %d have no such limit", version)
	}
	for _, row := range all {
		if !slices.ContainsFunc(row, func(f limitFile) bool { return canHave(version, l.controller, f.name) }) {
			return fmt.Sprintf("cgroups of this machine have no %s", row[0].name)
		}
	}
	return ""
}

// canHave reports whether a cgroup can have a file. It looks into a cgroup that it makes, because the
// root of a hierarchy does not have all files.
func canHave(version int, controller, name string) bool {
	hierarchy := "/sys/fs/cgroup"
	if version == 1 {
		hierarchy += "/" + controller
	} else {
		if controller == "blkio" {
			controller = "io"
		}
		there, _ := os.ReadFile(hierarchy + "/cgroup.controllers")
		on, _ := os.ReadFile(hierarchy + "/cgroup.subtree_control")
		if !slices.Contains(strings.Fields(string(on)), controller) {
			return slices.Contains(strings.Fields(string(there)), controller) // stage 0 turns it on
		}
	}
	dir, err := os.MkdirTemp(hierarchy, "stage1-verify-probe-")
	if err != nil {
		return false
	}
	defer func() { _ = os.Remove(dir) }()
	_, err = os.Stat(filepath.Join(dir, name))
	return err == nil
}

// limitsInside asks for a limit of a stage1 that owns its resources, and compares what the app's program
// sees. If the stage1 mounts cgroups, the program sees its own, of version 2.
func (t *trial) limitsInside(ctx context.Context, l *limited) error {
	const dir = "/mnt"
	group := func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: dir, Type: "cgroup", Source: "cgroup", Options: []string{"ro"}})
		namespace(specs.CgroupNamespace)(s)
	}
	own := &specs.Spec{Linux: &specs.Linux{}}
	group(own)
	h := honoured{fields: l.fields, facts: slices.Clone(l.facts)}
	shows := t.honours(own)
	if shows {
		for _, row := range l.v2 {
			h.facts = append(h.facts, fact{"file " + dir + "/" + row[0].name, func(answer string) bool { return hasWords(answer, row[0].want) }, row[0].want})
		}
	}
	if len(h.facts) == 0 {
		return &absentError{Invisible, "no program sees the limit, because the stage1 does not show a program its cgroup"}
	}
	a, err := t.wholePod().start(ctx, func(s *specs.Spec) {
		t.observed(s)
		l.asks(s)
		if shows {
			group(s)
		}
	}, h.verb()...)
	if done, err := h.begun(err); done {
		return err
	}
	return h.seen(ctx, a.streams)
}

// outside looks for the limit in the cgroup of a running app, which must have its process.
func (l *limited) outside(a *wholeApp) error {
	dirs := cgroupTops(a.w.t.cgroups + "/" + string(a.id))
	rows, _ := l.onHost()
	for _, row := range rows {
		dir, file := fileOf(dirs, row)
		if dir == "" {
			return fmt.Errorf("the app's cgroup has no %s", row[0].name)
		}
		if !hasProcess(dir, a.pid) {
			return fmt.Errorf("process %d of the app is outside of its cgroup %s", a.pid, dir)
		}
		text := must(content(filepath.Join(dir, file.name)))
		if !hasWords(text, file.want) && (l.older == "" || !hasWords(text, l.older)) {
			return fmt.Errorf("%s is not in force: %s of %s is %q, want %q", strings.Join(l.fields, ", "), file.name, dir, text, file.want)
		}
	}
	return nil
}

// fileOf returns the first file of a row that exists in one of the directories.
func fileOf(dirs []string, row []limitFile) (dir string, file limitFile) {
	for _, f := range row {
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, f.name)); err == nil {
				return dir, f
			}
		}
	}
	return "", limitFile{}
}

// hasProcess reports whether a process is in a cgroup or below it.
func hasProcess(dir string, pid int) (found bool) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			pids, _ := pidsIn(path)
			found = found || slices.Contains(pids, strconv.Itoa(pid))
		}
		return nil
	})
	return found
}

// hasWords reports whether a text has some words, one after the other.
func hasWords(text, words string) bool { return strings.Contains(" "+text+" ", " "+words+" ") }
