package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/supervisor"
)

// Annotations of a pod that replace the settings of the same names.
const (
	cpusAnnotation   = "io.containerd.rkt.v1/kvm.cpus"
	memoryAnnotation = "io.containerd.rkt.v1/kvm.memory"
	typeAnnotation   = "io.containerd.rkt.v1/kvm.type"
)

// machineType returns the type of the machine of a pod with annotations.
func (s *settings) machineType(annotations map[string]string) (machine.Type, error) {
	word, from := s.Type, "settings of machines: type"
	if text, ok := annotations[typeAnnotation]; ok {
		word, from = machine.Type(text), "annotation "+typeAnnotation
	}
	if word != machine.Q35 && word != machine.MicroVM {
		return "", fmt.Errorf("%s: %.40q is neither %s nor %s", from, word, machine.Q35, machine.MicroVM)
	}
	return word, nil
}

// hostSize is the size of the host, which is the most that a machine gets without a setting.
func hostSize() (supervisor.Size, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return supervisor.Size{}, fmt.Errorf("read the size of the host: %w", err)
	}
	return supervisor.Size{CPUs: min(runtime.NumCPU(), maxCPUs), Memory: int64(info.Totalram) * int64(info.Unit)}, nil
}

// maxCPUs is how many processors QEMU's board can have.
const maxCPUs = 255

// sizes returns the sizes of the machine of a pod with annotations and limits.
func (s *settings) sizes(host supervisor.Size, annotations map[string]string, limits []byte) (z supervisor.Sizes, err error) {
	base := supervisor.Size{CPUs: s.CPUs, Memory: s.Memory}
	most := supervisor.Size{CPUs: s.MaxCPUs, Memory: s.MaxMemory}
	if most.CPUs == 0 {
		most.CPUs = max(host.CPUs, base.CPUs)
	}
	if most.Memory == 0 {
		most.Memory = max(host.Memory, base.Memory)
	}
	if base.CPUs < 1 || base.CPUs > most.CPUs || most.CPUs > maxCPUs {
		return z, fmt.Errorf("settings of machines: cpus is %d and maxCPUs %d: 1 ≤ cpus ≤ maxCPUs ≤ %d", base.CPUs, most.CPUs, maxCPUs)
	}
	if base.Memory < mebibyte || base.Memory%mebibyte != 0 || base.Memory > most.Memory {
		return z, fmt.Errorf("settings of machines: memory is %d bytes and maxMemory %d: memory is at least a MiB, in whole MiB, and no more than maxMemory", base.Memory, most.Memory)
	}
	if text, ok := annotations[cpusAnnotation]; ok {
		base.CPUs, err = strconv.Atoi(text)
		if err != nil || base.CPUs < 1 || base.CPUs > most.CPUs {
			return z, fmt.Errorf("annotation %s: %.40q is not a number of processors from 1 to %d", cpusAnnotation, text, most.CPUs)
		}
	}
	if text, ok := annotations[memoryAnnotation]; ok {
		base.Memory, err = parseMemory(text)
		if err != nil || base.Memory < leastMemory || base.Memory > most.Memory {
			return z, fmt.Errorf("annotation %s: %.40q is not a size in MiB or GiB from 128Mi to %dMi", memoryAnnotation, text, most.Memory/mebibyte)
		}
	}
	return supervisor.PlanSizes(base, most, limits)
}

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
	// leastMemory is what the kernel, the agent and a small app need.
	leastMemory = 128 * mebibyte
)

// parseMemory parses a size such as 512Mi or 2Gi.
func parseMemory(text string) (int64, error) {
	unit := int64(mebibyte)
	number, ok := strings.CutSuffix(text, "Mi")
	if !ok {
		number, ok = strings.CutSuffix(text, "Gi")
		unit = gibibyte
	}
	if !ok {
		return 0, fmt.Errorf("%q has no unit", text)
	}
	n, err := strconv.ParseInt(number, 10, 32)
	return n * unit, err
}
