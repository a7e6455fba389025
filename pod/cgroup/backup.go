package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// restorePasses is how often all files are restored: if limits depend on each other, the
// kernel may refuse to restore one before the other.
const restorePasses = 3

// knob is a file that holds limits. A file with a line for each device or interface keeps
// the lines of devices that a write does not mention. none is the value to write for a
// device that had no line before.
type knob struct{ pattern, none string }

// knobs lists the files of each controller, for version 1 and version 2.
var knobs = map[int]map[string][]knob{
	1: {
		"memory": {
			{pattern: "memory.limit_in_bytes"}, {pattern: "memory.memsw.limit_in_bytes"},
			{pattern: "memory.soft_limit_in_bytes"}, {pattern: "memory.swappiness"}, {pattern: "memory.oom_control"},
			{pattern: "memory.kmem.tcp.limit_in_bytes"},
		},
		"cpu": {
			{pattern: "cpu.shares"}, {pattern: "cpu.cfs_quota_us"}, {pattern: "cpu.cfs_period_us"}, {pattern: "cpu.cfs_burst_us"},
			{pattern: "cpu.rt_runtime_us"}, {pattern: "cpu.rt_period_us"}, {pattern: "cpu.idle"},
		},
		"cpuset":   {{pattern: "cpuset.cpus"}, {pattern: "cpuset.mems"}, {pattern: "cpus"}, {pattern: "mems"}},
		"pids":     {{pattern: "pids.max"}},
		"blkio":    {{pattern: "blkio.*weight"}, {"blkio.*weight_device", "0"}, {"blkio.throttle.*_device", "0"}},
		"hugetlb":  {{pattern: "hugetlb.*.limit_in_bytes"}},
		"net_cls":  {{pattern: "net_cls.classid"}},
		"net_prio": {{"net_prio.ifpriomap", "0"}},
		"rdma":     {{"rdma.max", "hca_handle=max hca_object=max"}},
	},
	2: {
		"memory":  {{pattern: "memory.max"}, {pattern: "memory.swap.max"}, {pattern: "memory.low"}},
		"cpu":     {{pattern: "cpu.max"}, {pattern: "cpu.max.burst"}, {pattern: "cpu.weight"}, {pattern: "cpu.idle"}},
		"cpuset":  {{pattern: "cpuset.cpus"}, {pattern: "cpuset.mems"}},
		"pids":    {{pattern: "pids.max"}},
		"blkio":   {{"io.max", "rbps=max wbps=max riops=max wiops=max"}, {"io.weight", "default"}, {"io.bfq.weight", "0"}},
		"hugetlb": {{pattern: "hugetlb.*.max"}},
		"rdma":    {{"rdma.max", "hca_handle=max hca_object=max"}},
	},
}

// backup is the content of files before they were changed.
type backup map[string]saved // by path

type saved struct {
	lines []string
	none  string
}

// backup reads the files that limits are about to be written to.
func (g *Group) backup(res *specs.LinuxResources) (backup, error) {
	files := backup{}
	for controller, wanted := range limited(res) {
		if !wanted && (controller != "memory" || res.Memory == nil) { // disableOOMKiller: false is a change, too
			continue
		}
		for _, k := range knobs[g.record.Version][controller] {
			if err := files.add(filepath.Join(g.Dir(controller), k.pattern), k.none); err != nil {
				return nil, err
			}
		}
	}
	for name := range res.Unified {
		if err := files.add(filepath.Join(g.Dir(""), filepath.Base(name)), ""); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// add reads the files that match a pattern. Depending on the kernel, a controller may have
// no such file.
func (b backup) add(pattern, none string) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, path := range paths {
		lines, err := readLines(path)
		if err != nil {
			return err
		}
		b[path] = saved{lines, none}
	}
	return nil
}

// readLines returns the lines that restore the file's present content when they are written
// to the file.
func readLines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if filepath.Base(path) == "memory.oom_control" { // only one of its lines can be written
		value, _, _ := strings.Cut(strings.TrimPrefix(string(text), "oom_kill_disable "), "\n")
		return []string{value}, nil
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, nil
}

// restore writes back the content of files that have changed since.
func (b backup) restore() error {
	var err error
	for range restorePasses {
		err = nil
		for _, path := range slices.Sorted(maps.Keys(b)) {
			err = errors.Join(err, b[path].restore(path))
		}
		if err == nil {
			break
		}
	}
	return err
}

func (s saved) restore(path string) error {
	now, err := readLines(path)
	if err != nil || slices.Equal(now, s.lines) {
		return err
	}
	var back []string
	for _, line := range now {
		key, _, _ := strings.Cut(line, " ")
		if s.none != "" && !slices.ContainsFunc(s.lines, func(old string) bool { return strings.HasPrefix(old, key+" ") }) {
			back = append(back, key+" "+s.none)
		}
	}
	for _, line := range s.lines {
		if !slices.Contains(now, line) {
			back = append(back, line)
		}
	}
	for _, line := range back {
		err = errors.Join(err, os.WriteFile(path, []byte(line+"\n"), 0)) // with the newline, because a write of no bytes has no effect
	}
	return err
}
