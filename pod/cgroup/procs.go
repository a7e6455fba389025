package cgroup

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Pids lists the processes in the cgroup and in the cgroups below it, sorted. A missing
// cgroup has no processes.
func (g *Group) Pids() ([]int, error) {
	return pidsBelow(g.record.Dir())
}

// allPids is Pids over every hierarchy: a process that may write to cgroups may have left
// its cgroup in some hierarchies.
func (g *Group) allPids() ([]int, error) {
	var all []int
	for _, dir := range g.dirs {
		pids, err := pidsBelow(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, pids...)
	}
	return normal(all), nil
}

func normal(pids []int) []int {
	slices.Sort(pids)
	return slices.Compact(pids)
}

// pidsBelow lists the processes of one directory and of those below it.
func pidsBelow(dir string) ([]int, error) {
	var all []int
	err := walk(dir, func(p place) error {
		pids, err := pidsIn(p)
		all = append(all, pids...)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	return normal(all), nil
}

func pidsIn(p place) ([]int, error) {
	b, err := p.read("cgroup.procs")
	if errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup
		b, err = p.read("cgroup.threads")
	}
	if err != nil {
		return nil, unlessGone(err)
	}
	var pids []int
	for line := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
