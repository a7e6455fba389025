package main

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
	"time"
)

// meter counts the processor time and the page faults of containerd, its clients, the shims and
// everything in the containers. Those of this program, which is a client as well, are not in it.
type meter struct {
	cpu, memory account
	daemon      int // process of containerd
}

// account is one of a meter's counts: the sum of two cgroups.
type account struct {
	daemon     string // cgroup of containerd, of what it has started, and of ctr
	containers string // cgroup above those of the containers
	file       string // in these cgroups
	parse      func(string) (float64, error)
}

// use is what a meter shows.
type use struct {
	cpu    float64 // milliseconds
	daemon float64 // of them those of containerd itself
	faults float64
}

// ours returns the milliseconds of everything that containerd has started, and of ctr.
func (u use) ours() float64 { return u.cpu - u.daemon }

// since returns what was used after an earlier use.
func (u use) since(v use) use { return use{u.cpu - v.cpu, u.daemon - v.daemon, u.faults - v.faults} }

// newMeter makes the cgroups, and moves containerd, which has started nothing yet, to them. The kernel adds the counts of a removed cgroup to its parent, so
// nothing is lost when containers are deleted.
func newMeter(namespace string, daemon int) (*meter, error) {
	under := func(root, file string, parse func(string) (float64, error)) account {
		return account{filepath.Join(root, namespace+"-daemon"), filepath.Join(root, namespace), file, parse}
	}
	root := "/sys/fs/cgroup"
	m := &meter{cpu: under(root, "cpu.stat", parseCPUStat), memory: under(root, "memory.stat", parseFaults), daemon: daemon}
	if cgroupVersion() == "v1" {
		m.cpu = under(filepath.Join(root, "cpuacct"), "cpuacct.usage", parseCPUUsage)
		m.memory = under(filepath.Join(root, "memory"), "memory.stat", parseFaults)
	}
	for _, dir := range m.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(err, m.close())
		}
	}
	return m, m.take(daemon)
}

// dirs returns the directories of the cgroups.
func (m *meter) dirs() []string {
	dirs := []string{m.cpu.daemon, m.cpu.containers}
	if m.memory.daemon != m.cpu.daemon {
		dirs = append(dirs, m.memory.daemon, m.memory.containers)
	}
	return dirs
}

// take moves a process, and what it will start, to the cgroups.
func (m *meter) take(pid int) error {
	for _, dir := range slices.Compact([]string{m.cpu.daemon, m.memory.daemon}) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// read returns the sum of the two cgroups.
func (a account) read() (float64, error) {
	var sum float64
	for _, dir := range []string{a.daemon, a.containers} {
		text, err := os.ReadFile(filepath.Join(dir, a.file))
		if err != nil {
			return 0, err
		}
		n, err := a.parse(string(text))
		if err != nil {
			return 0, fmt.Errorf("%s/%s: %w", dir, a.file, err)
		}
		sum += n
	}
	return sum, nil
}

// Work behind an answer counts for the operation that caused it: settled waits until less than
// restUse was used for restTime, or for restPatience.
const (
	restTime     = 20 * time.Millisecond
	restUse      = 0.3 // milliseconds
	restPatience = 2 * time.Second
)

// settled returns what was used so far, once nearly no processor time is being used.
func (m *meter) settled(ctx context.Context) (use, error) {
	deadline := time.Now().Add(restPatience)
	last, err := m.cpu.read()
	for err == nil && time.Now().Before(deadline) {
		select {
		case <-time.After(restTime):
		case <-ctx.Done():
			return use{}, ctx.Err()
		}
		var now float64
		if now, err = m.cpu.read(); err != nil {
			break
		}
		rested := now-last < restUse
		if last = now; rested {
			break
		}
	}
	if err != nil {
		return use{}, err
	}
	daemon, err := cpuTime(m.daemon)
	if err != nil {
		return use{}, err
	}
	faults, err := m.memory.read()
	return use{last, float64(daemon) / 1e6, faults}, err
}

// close removes the cgroups, which must be empty.
func (m *meter) close() (err error) {
	for _, dir := range m.dirs() {
		if e := os.Remove(dir); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// parseCPUUsage returns the milliseconds of cpuacct.usage, which has nanoseconds.
func parseCPUUsage(text string) (float64, error) {
	ns, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return ns / 1e6, err
}

// parseCPUStat returns the milliseconds of usage_usec in cpu.stat.
func parseCPUStat(text string) (float64, error) {
	us, err := field(text, "usage_usec")
	return us / 1e3, err
}

// parseFaults returns the page faults in memory.stat, with those of the cgroups below, which
// version 1 counts in a line of its own.
func parseFaults(text string) (float64, error) {
	if n, err := field(text, "total_pgfault"); err == nil {
		return n, nil
	}
	return field(text, "pgfault")
}

// field returns the number of a line such as "name 12".
func field(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(n), 64)
		}
	}
	return 0, errors.New("without " + name)
}
