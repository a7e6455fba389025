package main

import "fmt"

// operation is one line of the table.
type operation int

const (
	opRun operation = iota
	opRunCPU
	opRunFaults
	opColdRun
	opColdRunCPU
	opFirstCreate
	opFirstStart
	opFirst
	opFirstCPU
	opFirstFaults
	opLastEnd
	opLastEndCPU
	opLastEndFaults
	opCreate
	opStart
	opCreateStart
	opCreateStartCPU
	opCreateStartFaults
	opEnd
	opEndCPU
	opEndFaults
	opExec
	opExecCPU
	opExecFaults
	opTogether
	opTogetherCPU
	opPodOfTwo
	opManyPods
	opManyPodsOurs
	opManyContainers
	opManyContainersOurs
	opManyExecs
	opManyExecsOurs
	opPSS
	opAnonymous
	opFurtherPSS
	opFurtherAnonymous
	opUsedPSS
	opMuchUsedPSS
	opThroughput
	opShimCPU

	// Of machines.
	opReady
	opReadyCPU
	opSavedReady
	opSavedReadyCPU
	opSavedFirst
	opSavedFirstCPU
	opSavedOwn
	opMachineMemory
	opMachineOwn
	opMachineFiles
	opRunPSS
	opShimPSS
	opGuestMemory
	opBuffer
	opKernelPages
	opVolumeRead
	opVolumeReadCPU
	opVolumeWrite
	opVolumeWriteCPU
	opDiskRead
	opDiskReadCPU
	opDiskWrite
	opDiskWriteCPU
	opSend
	opSendCPU
	opReceive
	opReceiveCPU
)

// faults returns the operation that has the page faults of one that has the processor time.
func (o operation) faults() (operation, bool) {
	switch o {
	case opRunCPU, opFirstCPU, opLastEndCPU, opCreateStartCPU, opEndCPU, opExecCPU:
		return o + 1, true
	}
	return 0, false
}

// description describes a line of the table.
type description struct {
	name string
	unit string
	// more reports that larger values are better.
	more   bool
	budget budget // the project's
}

// budget bounds the ratio to the baseline. The zero value is no budget.
type budget struct {
	bound    float64
	absolute bool // bounds the median itself
	floor    bool // bounds the ratio to the floor
}

// describe returns the line of an operation.
func (o operation) describe() description {
	switch o {
	case opRun:
		return description{name: "`ctr run --rm … true`", unit: "ms", budget: budget{bound: 0.6}}
	case opRunCPU:
		return description{name: "processor time of `ctr run --rm … true`", unit: "ms"}
	case opRunFaults:
		return description{name: "page faults of `ctr run --rm … true`", unit: "count"}
	case opColdRun:
		return description{name: "`ctr run --rm … true`, programs not in memory", unit: "ms"}
	case opColdRunCPU:
		return description{name: "processor time of that", unit: "ms"}
	case opFirstCreate:
		return description{name: "Create of a new pod's container", unit: "ms"}
	case opFirstStart:
		return description{name: "Start of a new pod's container", unit: "ms"}
	case opFirst:
		return description{name: "Create + Start of a new pod's container", unit: "ms"}
	case opFirstCPU:
		return description{name: "processor time of Create + Start of a new pod's container", unit: "ms"}
	case opFirstFaults:
		return description{name: "page faults of Create + Start of a new pod's container", unit: "count"}
	case opLastEnd:
		return description{name: "Kill + Delete of a pod's last container", unit: "ms"}
	case opLastEndCPU:
		return description{name: "processor time of Kill + Delete of a pod's last container", unit: "ms"}
	case opLastEndFaults:
		return description{name: "page faults of Kill + Delete of a pod's last container", unit: "count"}
	case opCreate:
		return description{name: "Create of one more container", unit: "ms"}
	case opStart:
		return description{name: "Start of one more container", unit: "ms"}
	case opCreateStart:
		return description{name: "Create + Start of one more container", unit: "ms", budget: budget{bound: 0.25}}
	case opCreateStartCPU:
		return description{name: "processor time of Create + Start of one more container", unit: "ms"}
	case opCreateStartFaults:
		return description{name: "page faults of Create + Start of one more container", unit: "count"}
	case opEnd:
		return description{name: "Kill + Delete of one of many", unit: "ms", budget: budget{bound: 0.25}}
	case opEndCPU:
		return description{name: "processor time of Kill + Delete of one of many", unit: "ms"}
	case opEndFaults:
		return description{name: "page faults of Kill + Delete of one of many", unit: "count"}
	case opExec:
		return description{name: "Exec + Start + Wait of `true`", unit: "ms", budget: budget{bound: 0.25}}
	case opExecCPU:
		return description{name: "processor time of Exec + Start + Wait + Delete of `true`", unit: "ms"}
	case opExecFaults:
		return description{name: "page faults of Exec + Start + Wait + Delete of `true`", unit: "count"}
	case opTogether:
		return description{name: "ten pods from Create to Delete at once", unit: "ms"}
	case opTogetherCPU:
		return description{name: "processor time of ten pods at once", unit: "ms"}
	case opPodOfTwo:
		return description{name: "RunPodSandbox and two containers, through CRI", unit: "ms", budget: budget{bound: 0.5}}
	case opManyPods:
		return description{name: "processor time of Create + Start, the 200th pod beside the first", unit: "×", budget: budget{bound: 1, floor: true}}
	case opManyPodsOurs:
		return description{name: "without containerd's: the 200th pod beside the first", unit: "×", budget: budget{bound: 1.2, absolute: true}}
	case opManyContainers:
		return description{name: "processor time of Create + Start, a pod's 100th container beside the second", unit: "×", budget: budget{bound: 1, floor: true}}
	case opManyContainersOurs:
		return description{name: "without containerd's: a pod's 100th container beside the second", unit: "×", budget: budget{bound: 1.2, absolute: true}}
	case opManyExecs:
		return description{name: "processor time of an exec of `true`, a container's 10000th beside the first", unit: "×", budget: budget{bound: 1, floor: true}}
	case opManyExecsOurs:
		return description{name: "without containerd's: a container's 10000th exec beside the first", unit: "×", budget: budget{bound: 1.2, absolute: true}}
	case opPSS:
		return description{name: "PSS of a pod's overhead", unit: "MB", budget: budget{bound: 0.75}}
	case opAnonymous:
		return description{name: "anonymous memory of it", unit: "MB"}
	case opFurtherPSS:
		return description{name: "PSS for each further container", unit: "MB", budget: budget{bound: 0.5, absolute: true}}
	case opFurtherAnonymous:
		return description{name: "anonymous memory of it, each further", unit: "MB"}
	case opUsedPSS:
		return description{name: "PSS of a pod's overhead after 50 execs", unit: "MB", budget: budget{bound: 0.75}}
	case opMuchUsedPSS:
		return description{name: "PSS of a pod's overhead after 2000 execs", unit: "MB", budget: budget{bound: 0.75}}
	case opThroughput:
		return description{name: "throughput of stdout", unit: "MB/s", more: true, budget: budget{bound: 2}}
	case opShimCPU:
		return description{name: "the shim's CPU time for it", unit: "ms/GB", budget: budget{bound: 1}}
	}
	return o.describeOfMachines()
}

// verdict returns "met" or "not met".
func (d description) verdict(measured float64) string {
	if (d.more && measured >= d.budget.bound) || (!d.more && measured <= d.budget.bound) {
		return "met"
	}
	return "not met"
}

// bound returns the budget as the table has it.
func (d description) bound() string {
	sign, unit := "≤", "×"
	if d.more {
		sign = "≥"
	}
	switch {
	case d.budget.absolute:
		unit = d.unit
	case d.budget.floor:
		unit = "× " + floor
	}
	return fmt.Sprintf("%s %g %s", sign, d.budget.bound, unit)
}
