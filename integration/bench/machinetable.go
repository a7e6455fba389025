package main

import (
	"fmt"
	"strings"
	"time"
)

// describeOfMachines returns the line of an operation that only machines have.
func (o operation) describeOfMachines() description {
	switch o {
	case opReady:
		return description{name: "pod ready", unit: "ms"}
	case opReadyCPU:
		return description{name: "processor time of it", unit: "ms"}
	case opSavedReady:
		return description{name: "pod ready, of a saved machine", unit: "ms"}
	case opSavedFirst:
		return description{name: "Create + Start of its container", unit: "ms"}
	case opSavedReadyCPU, opSavedFirstCPU:
		return description{name: "processor time of it", unit: "ms"}
	case opMachineMemory:
		return description{name: "QEMU, virtiofsd and proxies", unit: "MB"}
	case opSavedOwn:
		return description{name: "of no file, of a saved machine", unit: "MB"}
	case opMachineOwn:
		return description{name: "of it: of no file", unit: "MB"}
	case opMachineFiles:
		return description{name: "of it: part of programs and libraries", unit: "MB"}
	case opRunPSS:
		return description{name: "PSS of `run`", unit: "MB"}
	case opShimPSS:
		return description{name: "PSS of the shim", unit: "MB"}
	case opGuestMemory:
		return description{name: "resident memory of the guest", unit: "MB"}
	case opBuffer:
		return description{name: "TCG's buffer", unit: "MB"}
	case opKernelPages:
		return description{name: "pages of the file `vmlinux`", unit: "MB"}
	case opVolumeRead:
		return description{name: "reading a volume (virtiofs)", unit: "MB/s", more: true}
	case opVolumeWrite:
		return description{name: "writing a volume, with fsync", unit: "MB/s", more: true}
	case opDiskRead:
		return description{name: "reading a root that is a disk", unit: "MB/s", more: true}
	case opDiskWrite:
		return description{name: "writing it, with fsync", unit: "MB/s", more: true}
	case opSend:
		return description{name: "sending by TCP", unit: "MB/s", more: true}
	case opReceive:
		return description{name: "receiving by TCP", unit: "MB/s", more: true}
	case opVolumeReadCPU, opVolumeWriteCPU, opDiskReadCPU, opDiskWriteCPU, opSendCPU, opReceiveCPU:
		return description{name: "processor time of that", unit: "ms/GB"}
	}
	panic(fmt.Sprintf("operation %d has no description", int(o)))
}

// machineRow is a row of the table of machines.
type machineRow struct {
	op     operation
	beside string // what the reference is
	budget budget // a ratio to the reference, or absolute
}

// Names of references.
const (
	bareBoot     = "bare boot"
	byNamespaces = "fork and exec in new namespaces"
	byHand       = "fork and exec"
	onHost       = "native"
)

// machineRows are the rows in their order.
func machineRows() []machineRow {
	return []machineRow{
		{opReady, bareBoot, budget{bound: 1.3}},
		{opReadyCPU, bareBoot, budget{bound: 1.3}},
		{opFirst, bareBoot, budget{}},
		{opFirstCPU, bareBoot, budget{}},
		{opSavedReady, bareBoot, budget{}},
		{opSavedReadyCPU, bareBoot, budget{}},
		{opSavedFirst, bareBoot, budget{}},
		{opSavedFirstCPU, bareBoot, budget{}},
		{opLastEnd, "", budget{}},
		{opLastEndCPU, "", budget{}},
		{opCreateStart, byNamespaces, budget{bound: 3}},
		{opCreateStartCPU, byNamespaces, budget{bound: 3}},
		{opEnd, "", budget{}},
		{opEndCPU, "", budget{}},
		{opExec, byHand, budget{bound: 3}},
		{opExecCPU, byHand, budget{bound: 3}},
		{opMachineMemory, bareBoot, budget{bound: 40, absolute: true}},
		{opMachineOwn, bareBoot, budget{}},
		{opSavedOwn, "", budget{}},
		{opMachineFiles, bareBoot, budget{}},
		{opRunPSS, "", budget{}},
		{opShimPSS, "", budget{}},
		{opGuestMemory, bareBoot, budget{}},
		{opBuffer, bareBoot, budget{}},
		{opKernelPages, bareBoot, budget{}},
		{opVolumeRead, onHost, budget{}},
		{opVolumeReadCPU, onHost, budget{}},
		{opVolumeWrite, onHost, budget{}},
		{opVolumeWriteCPU, onHost, budget{}},
		{opDiskRead, onHost, budget{}},
		{opDiskReadCPU, onHost, budget{}},
		{opDiskWrite, onHost, budget{}},
		{opDiskWriteCPU, onHost, budget{}},
		{opSend, onHost, budget{}},
		{opSendCPU, onHost, budget{}},
		{opReceive, onHost, budget{}},
		{opReceiveCPU, onHost, budget{}},
	}
}

// machineTable renders the results of -machines: of each row the medians of the machine and of its reference,
// as results.table has them.
func (r results) machineTable() string {
	rows := [][]string{{"", "n", "unit", "kvm (p90)", "reference (p90)", "ratio", "reference", "budget"}}
	for _, row := range machineRows() {
		samples := r[row.op]
		mine, theirs := samples[virtual], samples[reference]
		if len(mine) == 0 {
			continue
		}
		d := row.op.describe()
		d.budget = row.budget
		rows = append(rows, []string{
			d.name, fmt.Sprint(len(mine)), d.unit, cell(mine, d.more), cell(theirs, d.more), ratioCell(mine, theirs), row.beside, d.judgeWith(mine, theirs),
		})
	}
	return render(rows)
}

// machineDocument returns docs/results/kvm.md.
func machineDocument(m *machine, machines, accel string, rest time.Duration, table string) string {
	return fmt.Sprintf(`# Machines, measured

<!-- Written by make bench-kvm BENCH_RECORD=1. Do not edit: the next run overwrites it. -->

%s;
%s, accelerator %s

%s
Medians, with the percentile of the bad end in brackets: the 90th, or the 10th where more is better. Pods and
references take turns. Processor time is that of containerd, the shim, `+"`run`"+`, QEMU and virtiofsd together;
the guest's is that of QEMU. On a busy host it says more than the times do.

* **Bare boot**: QEMU with the same command line, the same kernel, and an initramfs with the same files, whose
  first process loads the modules of the channel and says that it is up, by the same channel. The benchmark
  compares the command lines. A pod is ready when the supervisor in its machine answers; the time begins with
  the client's call of Create. **Of a saved machine**: the machine is restored, and does not boot.
* **Fork and exec** by hand: a program in a container of the machine forks, the child executes `+"`true`"+` of the
  container's root, and the program waits. **In new namespaces**: with new mount, PID, IPC, UTS and cgroup
  namespaces, as a container has.
* **Memory** is that of a pod of one container, and of a bare machine, after %s of rest. The memory of the guest,
  the buffer of TCG and the pages of `+"`vmlinux`"+`, which all machines share, are not in the first row.
* **Files** of %d MB, that the host has in its memory, are read and written in blocks of 64 kB. A root that is a disk is
  an image of ext4, with native a loop device. **TCP** goes through a tap and a pair of veth, with native only
  through the pair, and carries %d MB.

[kvm.json](kvm.json) has every sample.
`, strings.TrimSuffix(m.String(), "\n"), machines, accel, table, rest, transferred>>20, carried>>20)
}
