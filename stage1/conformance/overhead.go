package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Overhead is the memory that a pod of the stage1 needs in addition to its apps: the
// proportional set size, in bytes. It excludes kernel memory, and the shim, which is the
// same for every stage1.
type Overhead struct {
	PerApp  int64 `json:"furtherAppBytes"` // of each app after the first
	Pod     int64 `json:"podBytes"`        // with one app
	Process int   `json:"processes"`       // number of processes, with one app
}

const (
	// podsMeasured pods are measured together, because they share the pages of their
	// programs, as the pods of a node do.
	podsMeasured = 4
	// furtherApps apps are added to one of the pods, for Overhead.PerApp.
	furtherApps = 4
)

// Overhead measures an idle pod.
func (k *Kit) Overhead(ctx context.Context) (Overhead, error) {
	var o Overhead
	c := Check{run: func(ctx context.Context, t *trial) error {
		var one *wholePod
		for range podsMeasured {
			one = t.wholePod()
			must(one.waiting(ctx, nil))
		}
		pods, n, err := t.pss()
		if err != nil {
			return err
		}
		o.Pod, o.Process = pods/podsMeasured, n/podsMeasured
		if !t.mutable() {
			return nil
		}
		for range furtherApps {
			must(one.waiting(ctx, nil))
		}
		all, _, err := t.pss()
		o.PerApp = max(0, (all-pods)/furtherApps)
		return err
	}}
	_, _, err := k.attempt(ctx, &c)
	return o, err
}

// pss adds up the memory of the processes that are not in the cgroups of apps.
func (t *trial) pss() (bytes int64, n int, err error) {
	var apps []string
	for _, dir := range cgroupDirs(t.cgroups) {
		pids, err := pidsIn(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, 0, err
		}
		apps = append(apps, pids...)
	}
	for _, pid := range descendants() {
		if slices.Contains(apps, strconv.Itoa(pid)) {
			continue
		}
		size, err := pssOf(pid)
		if err != nil {
			return 0, 0, err
		}
		bytes, n = bytes+size, n+1
	}
	return bytes, n, nil
}

func pssOf(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if errors.Is(err, os.ErrNotExist) { // the process has ended
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if words := strings.Fields(lines.Text()); len(words) == 3 && words[0] == "Pss:" {
			kilobytes, err := strconv.ParseInt(words[1], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, nil // a process without memory is ending
}
