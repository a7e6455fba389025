package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// leaveLimit is how long processes, mounts and cgroups that are ending may still exist, on
// an idle machine.
const leaveLimit = 10 * time.Second

// The first and the longest pause between two questions of poll.
const (
	soonAgain  = 10 * time.Millisecond
	laterAgain = 250 * time.Millisecond
)

// poll reports whether a condition holds within a limit of time, and before ctx is done, if
// no event announces it. It asks more and more rarely, because an answer may be a look at all
// processes of the machine.
func poll(ctx context.Context, limit time.Duration, holds func() bool) bool {
	end := time.Now().Add(limit)
	for pause := soonAgain; !holds(); pause = min(pause*3/2, laterAgain) {
		if ctx.Err() != nil || time.Now().After(end) {
			return false
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return true
}

// leftovers looks for remains of the trial, waits leaveLimit for them to go, and then
// removes them and returns an error. After a check that has failed, or ran out of time, remains
// are expected: it removes them at once, and they are no error.
func (t *trial) leftovers(ctx context.Context, failed bool) error {
	limit := leaveLimit * Pace()
	if failed {
		limit = 0
	}
	var left []string
	if poll(ctx, limit, func() bool { left = t.remains(); return len(left) == 0 }) {
		return nil
	}
	err := t.removeAll()
	if failed || ctx.Err() != nil {
		return err
	}
	return errors.Join(fmt.Errorf("left behind: %s", strings.Join(left, "; ")), err)
}

// remains lists the remains of the trial's pods.
func (t *trial) remains() []string {
	var left []string
	for _, pid := range descendants() {
		left = append(left, fmt.Sprintf("process %d (%s)", pid, commandOf(pid)))
	}
	for _, m := range t.mounts() {
		left = append(left, "mount "+m)
	}
	for _, d := range cgroupDirs(t.cgroups) {
		left = append(left, "cgroup "+d)
	}
	for _, p := range t.podDirs() {
		left = append(left, "pod directory "+p)
	}
	return left
}

// removeAll removes the remains by force, again and again until there are none: what a killed
// process has held is free only after its end.
func (t *trial) removeAll() error {
	var err error
	poll(context.Background(), leaveLimit*Pace(), func() bool {
		killDescendants()
		for _, m := range t.mounts() {
			_ = unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
		err = nil
		for _, d := range cgroupDirs(t.cgroups) {
			if rmErr := os.Remove(d); rmErr != nil && !errors.Is(rmErr, os.ErrNotExist) {
				err = errors.Join(err, rmErr)
			}
		}
		for _, p := range t.podDirs() {
			err = errors.Join(err, os.RemoveAll(p))
		}
		return len(t.remains()) == 0
	})
	return err
}

// killUntil waits until ctx is done, and then kills all descendants again and again until
// stop is closed.
func killUntil(ctx context.Context, stop <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-stop:
		return
	}
	for {
		killDescendants()
		select {
		case <-stop:
			return
		case <-time.After(soonAgain):
		}
	}
}

func killDescendants() {
	for _, pid := range descendants() {
		if st, err := proc.ReadStat(pid); err == nil {
			_ = proc.Signal(pid, st.StartTime, syscall.SIGKILL)
		}
	}
}

// descendants lists the running descendants of this process, without zombies. This process
// is a subreaper, so all descendants remain below it.
func descendants() []int {
	parents := map[int]proc.Stat{}
	files, _ := filepath.Glob("/proc/[0-9]*")
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(f))
		if err != nil {
			continue
		}
		if st, err := proc.ReadStat(pid); err == nil {
			parents[pid] = st
		}
	}
	self := os.Getpid()
	var all []int
	for pid, st := range parents {
		if st.Parent == self && st.State == 'Z' {
			continue
		}
		for p := st.Parent; p > 0; p = parents[p].Parent {
			if p == self {
				all = append(all, pid)
				break
			}
		}
	}
	slices.Sort(all)
	return all
}

func commandOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return "?"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// podDirs lists the pod directories of the kit.
func (t *trial) podDirs() []string {
	dirs, _ := filepath.Glob(filepath.Join(t.Kit.dir, "pods/*/*"))
	return dirs
}

// mounts lists the mounts below the trial's directory and those of pods, the last ones first.
func (t *trial) mounts() []string {
	return mountsBelow(t.dir, filepath.Join(t.Kit.dir, "pods"))
}

// mountsBelow lists the mounts below some directories, the last ones first.
func mountsBelow(dirs ...string) []string {
	var all []string
	found, _ := mountinfo.GetMounts(nil)
	for _, m := range found {
		if slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(m.Mountpoint, dir+"/") }) {
			all = append(all, m.Mountpoint)
		}
	}
	slices.Reverse(all)
	return all
}

// cgroupTops returns the directories of a cgroup's path in all hierarchies.
func cgroupTops(path string) []string {
	v2, _ := filepath.Glob("/sys/fs/cgroup" + path)
	v1, _ := filepath.Glob("/sys/fs/cgroup/*" + path)
	return append(v2, v1...)
}

// cgroupDirs lists the cgroups below a path in every hierarchy, the deepest first.
func cgroupDirs(path string) []string {
	var all []string
	for _, top := range cgroupTops(path) {
		_ = filepath.WalkDir(top, func(dir string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && dir != top {
				all = append(all, dir)
			}
			return nil
		})
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return all
}

// removeCgroups removes the cgroup at a path in every hierarchy.
func removeCgroups(path string) error {
	var err error
	for _, top := range cgroupTops(path) {
		err = errors.Join(err, os.Remove(top))
	}
	return err
}
