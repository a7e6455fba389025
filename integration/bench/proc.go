package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// memory is the memory of a process, in MB of 10^6 bytes.
type memory struct {
	pss       float64 // shared pages count in proportion
	anonymous float64 // pages that are in no file
}

func memoryOf(pid int) (memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return memory{}, err
	}
	defer f.Close()
	m, err := parseRollup(f)
	if err != nil {
		return memory{}, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return m, nil
}

// parseRollup reads an smaps_rollup, which counts in kB of 1024 bytes.
func parseRollup(r io.Reader) (memory, error) {
	var m memory
	wanted := map[string]*float64{"Pss:": &m.pss, "Anonymous:": &m.anonymous}
	s := bufio.NewScanner(r)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) != 3 || wanted[fields[0]] == nil {
			continue
		}
		kb, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return memory{}, fmt.Errorf("%s %w", fields[0], err)
		}
		*wanted[fields[0]] = float64(kb) * 1024 / 1e6
		delete(wanted, fields[0])
	}
	if len(wanted) > 0 {
		return memory{}, fmt.Errorf("without Pss or Anonymous: %w", s.Err())
	}
	return m, s.Err()
}

// parentOf returns the parent of a process.
func parentOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseParent(string(b))
}

// parseParent reads the fourth field of a process's stat. The second is a name
// that may contain anything.
func parseParent(stat string) (int, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0, fmt.Errorf("stat %q has no parent", stat)
	}
	return strconv.Atoi(fields[1])
}

// cpuTime returns the processor time of a process and of the threads that it had, in nanoseconds;
// /proc/PID/stat counts in much coarser ticks. A child is not part of it from its fork on.
func cpuTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of the kernel, of which clock_getcpuclockid(3) makes the id of a clock
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}
