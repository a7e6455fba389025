package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// meter counts the processor time of containerd, its clients, the shims and everything in the
// containers. The time of this program, which is a client as well, is not in it.
type meter struct {
	daemon     string // cgroup of containerd, of what it has started, and of ctr
	containers string // cgroup above those of the containers
	file       string // in these cgroups
	parse      func(string) (time.Duration, error)
}

// newMeter makes the cgroups. The kernel adds the time of a removed cgroup to its parent, so
// nothing is lost when containers are deleted.
func newMeter(namespace string) (*meter, error) {
	m := &meter{file: "cpu.stat", parse: parseCPUStat}
	root := "/sys/fs/cgroup"
	if cgroupVersion() == "v1" {
		root, m.file, m.parse = "/sys/fs/cgroup/cpuacct", "cpuacct.usage", parseCPUUsage
	}
	m.daemon = filepath.Join(root, namespace+"-daemon")
	m.containers = filepath.Join(root, namespace)
	for _, dir := range []string{m.daemon, m.containers} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(err, m.close())
		}
	}
	return m, nil
}

// take moves a process, and what it will start, to the cgroup.
func (m *meter) take(pid int) error {
	return os.WriteFile(filepath.Join(m.daemon, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// read returns the processor time used so far, in milliseconds.
func (m *meter) read() (float64, error) {
	var sum time.Duration
	for _, dir := range []string{m.daemon, m.containers} {
		text, err := os.ReadFile(filepath.Join(dir, m.file))
		if err != nil {
			return 0, err
		}
		used, err := m.parse(string(text))
		if err != nil {
			return 0, fmt.Errorf("%s/%s: %w", dir, m.file, err)
		}
		sum += used
	}
	return float64(sum) / float64(time.Millisecond), nil
}

// Work behind an answer counts for the operation that caused it: settled waits until less than
// restUse was used for restTime, or for restPatience.
const (
	restTime     = 20 * time.Millisecond
	restUse      = 0.3 // milliseconds
	restPatience = 2 * time.Second
)

// settled returns the processor time used so far, once nearly none is being used.
func (m *meter) settled(ctx context.Context) (float64, error) {
	deadline := time.Now().Add(restPatience)
	last, err := m.read()
	for err == nil && time.Now().Before(deadline) {
		select {
		case <-time.After(restTime):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		var now float64
		if now, err = m.read(); err == nil && now-last < restUse {
			return now, nil
		}
		last = now
	}
	return last, err
}

// close removes the cgroups, which must be empty.
func (m *meter) close() (err error) {
	for _, dir := range []string{m.daemon, m.containers} {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// parseCPUUsage reads cpuacct.usage, in nanoseconds.
func parseCPUUsage(text string) (time.Duration, error) {
	ns, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return time.Duration(ns), err
}

// parseCPUStat reads usage_usec of cpu.stat.
func parseCPUStat(text string) (time.Duration, error) {
	for line := range strings.Lines(text) {
		if us, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(us), 10, 64)
			return time.Duration(n) * time.Microsecond, err
		}
	}
	return 0, errors.New("without usage_usec")
}
