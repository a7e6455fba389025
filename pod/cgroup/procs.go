package cgroup

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
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

// Full reports whether the cgroup has as many processes and threads as its limit allows, and
// returns the limit. In a full cgroup fork fails, but on version 1 a process can still enter.
func (g *Group) Full() (limit uint64, full bool, err error) {
	dir := g.Dir("pids")
	if dir == "" {
		return 0, false, nil
	}
	limit, err = readNumber(filepath.Join(dir, "pids.max"))
	if err != nil || limit == 0 || limit == math.MaxUint64 { // no file, or no limit
		return limit, false, err
	}
	current, err := readNumber(filepath.Join(dir, "pids.current"))
	return limit, current >= limit, err
}

func normal(pids []int) []int {
	slices.Sort(pids)
	return slices.Compact(pids)
}

// pidsBelow lists the processes of one directory and of those below it.
func pidsBelow(dir string) ([]int, error) {
	pids, err := pidsIn(dir)
	if err != nil {
		return nil, err
	}
	subs, err := children(dir)
	if err != nil {
		return nil, err
	}
	for _, sub := range subs {
		more, err := pidsBelow(sub)
		if err != nil {
			return nil, err
		}
		pids = append(pids, more...)
	}
	return normal(pids), nil
}

func pidsIn(dir string) ([]int, error) {
	b, err := proc.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, unix.EOPNOTSUPP) { // a threaded cgroup
		b, err = proc.ReadFile(filepath.Join(dir, "cgroup.threads"))
	}
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
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

// children returns the cgroups right below one.
func children(dir string) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err == nil && childless(&st) {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if isGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range entries {
		if e.IsDir() {
			dirs = append(dirs, filepath.Join(dir, e.Name()))
		}
	}
	return dirs, nil
}

// childless reports whether a directory has no directories in it: it has two links.
func childless(st *unix.Stat_t) bool { return st.Nlink == 2 }

// isGone reports whether the error means that the cgroup was removed, before or after the
// open.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}
