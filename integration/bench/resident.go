package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/rkt/containerd-shim-rkt-v1/integration/leaks"
)

// machineProcesses are the pids of a pod's processes on the host.
type machineProcesses struct {
	qemu       int
	virtiofsds []int
	proxies    []int
	run        int
	shims      []int
}

// machineProcesses finds the processes of the only pod of a subject.
func (b *bench) machineProcesses(s subject) (m machineProcesses, err error) {
	if m.shims, err = b.shimPIDs(s); err != nil {
		return m, err
	}
	below, err := descendants(m.shims)
	if err != nil {
		return m, err
	}
	for _, pid := range below {
		argv0, _, _ := strings.Cut(leaks.CommandLine(pid), " ")
		switch filepath.Base(argv0) {
		case "qemu-system-x86_64":
			m.qemu = pid
		case "virtiofsd":
			m.virtiofsds = append(m.virtiofsds, pid)
		case "[kvm-proxy]":
			m.proxies = append(m.proxies, pid)
		case "run":
			m.run = pid
		}
	}
	if m.qemu == 0 || m.run == 0 || len(m.virtiofsds) == 0 {
		return m, fmt.Errorf("the pod of a machine has the processes %+v", m)
	}
	return m, nil
}

// descendants lists the processes below some processes.
func descendants(roots []int) ([]int, error) {
	pids, err := leaks.PIDs()
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, pid := range pids {
		parent, err := parentOf(pid)
		if errors.Is(err, os.ErrNotExist) {
			continue // the process has ended meanwhile
		}
		if err != nil {
			return nil, err
		}
		children[parent] = append(children[parent], pid)
	}
	var found []int
	for level := roots; len(level) > 0; {
		var next []int
		for _, pid := range level {
			next = append(next, children[pid]...)
		}
		found, level = append(found, next...), next
	}
	return found, nil
}

// resident is the memory of processes of a machine, in MB of 10^6 bytes.
type resident struct {
	guest  float64 // the guest's memory
	buffer float64 // of translated code, with TCG
	kernel float64 // pages of the file vmlinux, which all machines share and the host can drop
	own    float64 // of no file
	files  float64 // of programs and libraries: their part of the pages, which others map, too
}

// residentOf adds up the memory of some processes. The guest's memory, which QEMU and virtiofsd share, is
// counted for QEMU.
func residentOf(qemu int, others ...int) (sum resident, err error) {
	for _, pid := range append([]int{qemu}, others...) {
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
		if err != nil {
			return sum, err
		}
		r := parseResident(bufio.NewScanner(f))
		f.Close()
		if pid == qemu {
			sum.guest, sum.buffer, sum.kernel = r.guest, r.buffer, r.kernel
		}
		sum.own += r.own
		sum.files += r.files
	}
	return sum, nil
}

// parseResident reads the smaps of a process.
func parseResident(lines *bufio.Scanner) (r resident) {
	var mode, path string
	var rss, pss float64
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) >= 5 && strings.Contains(words[0], "-") {
			mode, path = words[1], strings.Join(words[5:], " ")
			continue
		}
		if len(words) != 3 {
			continue
		}
		kb, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			continue
		}
		n := kb * 1024 / 1e6
		switch words[0] {
		case "Rss:":
			rss = n
		case "Pss:":
			pss = n
		case "Anonymous:": // after both
			r.add(mode, path, rss, pss, n)
		}
	}
	return r
}

// add counts a mapping.
func (r *resident) add(mode, path string, rss, pss, anonymous float64) {
	switch {
	case path == "/guest", strings.HasPrefix(path, "/memfd:memory-backend"):
		r.guest += rss
	case mode == "rwxp":
		r.buffer += rss
	case path == "/": // a file of QEMU's jail, which is unmounted when the guest begins: vmlinux
		r.kernel += rss
	default:
		r.own += anonymous
		if rss > anonymous {
			r.files += max(0, pss-anonymous)
		}
	}
}

// measureResident reads the memory of a pod of one container, and of a bare machine, after they were left
// alone.
func measureResident(ctx context.Context, b *bench) error {
	ctx = b.namespaced(ctx)
	s := b.subject(virtual)
	err := b.undisturbed(ctx, func(ctx context.Context) error { _, err := b.running(ctx, s, s.name); return err })
	if err != nil {
		return err
	}
	err = b.undisturbed(ctx, func(ctx context.Context) error {
		m, err := b.bootBare(ctx)
		if err != nil {
			return err
		}
		err = b.leaveAlone(ctx)
		if err == nil {
			err = b.recordResident(s, m)
		}
		return errors.Join(err, m.close(), b.clear(ctx))
	})
	if err != nil {
		return err
	}
	return b.undisturbed(ctx, func(ctx context.Context) error { return b.measureRestored(ctx, s) })
}

// measureRestored reads the memory of no file of a pod whose machine was restored. No other machine shares its files.
func (b *bench) measureRestored(ctx context.Context, s subject) error {
	for range 2 { // the first one may be saved
		if err := b.clear(ctx); err != nil {
			return err
		}
		if _, err := b.runningWith(ctx, s, b.id(s), oci.WithProcessArgs(sleeper()...), withSaved()); err != nil {
			return err
		}
	}
	if err := b.leaveAlone(ctx); err != nil {
		return err
	}
	pod, err := b.machineProcesses(s)
	if err != nil {
		return err
	}
	r, err := residentOf(pod.qemu, append(pod.virtiofsds, pod.proxies...)...)
	if err != nil {
		return err
	}
	b.results.add(opSavedOwn, virtual, r.own)
	return b.clear(ctx)
}

func (b *bench) recordResident(s subject, bare *bareMachine) error {
	pod, err := b.machineProcesses(s)
	if err != nil {
		return err
	}
	mine, err := residentOf(pod.qemu, append(pod.virtiofsds, pod.proxies...)...)
	if err != nil {
		return err
	}
	b.recordMachine(virtual, mine)
	below, err := descendants([]int{bare.cmd.Process.Pid})
	if err != nil {
		return err
	}
	var others []int
	for _, pid := range below {
		if pid != bare.qemu {
			others = append(others, pid)
		}
	}
	theirs, err := residentOf(bare.qemu, others...)
	if err != nil {
		return err
	}
	b.recordMachine(reference, theirs)
	for op, pids := range map[operation][]int{opRunPSS: {pod.run}, opShimPSS: pod.shims} {
		for _, pid := range pids {
			m, err := memoryOf(pid)
			if err != nil {
				return err
			}
			b.results.add(op, virtual, m.pss)
		}
	}
	return nil
}

func (b *bench) recordMachine(column string, r resident) {
	for op, value := range map[operation]float64{
		opMachineMemory: r.own + r.files, opMachineOwn: r.own, opMachineFiles: r.files,
		opGuestMemory: r.guest, opBuffer: r.buffer, opKernelPages: r.kernel,
	} {
		b.results.add(op, column, value)
	}
}
