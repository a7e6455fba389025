// Package leaks finds things that containers have left on a machine: processes, mounts,
// cgroups, sockets, fifos, bundles and pod directories. It finds them by a private directory
// and a containerd namespace, so that it never lists things of other users of the machine. It
// removes nothing.
package leaks

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Scope says which things belong to the tests.
type Scope struct {
	// Dir is in the command line or in the environment of every process of the tests, or is a
	// prefix of its mount points.
	Dir string
	// Namespace is the first element of every cgroup path.
	Namespace string
	// Empty are directories below Dir that must be empty or absent.
	Empty []string
	// Absent are paths that must not exist.
	Absent []string
	// Pods are the UUIDs of the scope's pods. Cgroups outside the namespace's are found by
	// them.
	Pods []string
	// Except are processes that stay, such as the daemon.
	Except []int
}

// Remains returns a line for each thing of the scope that exists.
func (s Scope) Remains() ([]string, error) {
	var found []string
	for _, look := range []func() ([]string, error){s.processes, s.mounts, s.cgroups, s.files} {
		more, err := look()
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	return found, nil
}

// Only keeps those remains that are of some kinds: process, mount, cgroup, file.
func Only(remains []string, kinds ...string) []string {
	return slices.DeleteFunc(remains, func(r string) bool {
		kind, _, _ := strings.Cut(r, " ")
		return !slices.Contains(kinds, kind)
	})
}

func (s Scope) processes() ([]string, error) {
	pids, err := s.Processes()
	var found []string
	for _, pid := range pids {
		found = append(found, fmt.Sprintf("process %d: %s", pid, CommandLine(pid)))
	}
	return found, err
}

// Processes lists the processes of the scope.
func (s Scope) Processes() ([]int, error) {
	pids, err := PIDs()
	return slices.DeleteFunc(pids, func(pid int) bool { return s.excepted(pid) || !s.owns(pid) }), err
}

func (s Scope) excepted(pid int) bool { return slices.Contains(s.Except, pid) }

// owns reports whether a process belongs to the scope. A process that ends meanwhile does not.
func (s Scope) owns(pid int) bool {
	if s.Contained(pid) {
		return true
	}
	for _, f := range []string{"cmdline", "environ"} {
		b, _ := os.ReadFile(procPath(pid, f))
		if strings.Contains(string(b), s.Dir) {
			return true
		}
	}
	return false
}

// Contained reports whether a process is in the cgroup of one of the scope's containers.
func (s Scope) Contained(pid int) bool {
	cgroup, _ := os.ReadFile(procPath(pid, "cgroup"))
	return strings.Contains(string(cgroup), ":/"+s.Namespace+"/")
}

func (s Scope) mounts() ([]string, error) {
	points, err := s.MountPoints()
	var found []string
	for _, p := range points {
		found = append(found, "mount "+p)
	}
	return found, err
}

// MountPoints lists the mounts of the scope in this process's mount namespace,
// which is the daemon's too, later ones last.
func (s Scope) MountPoints() ([]string, error) {
	lines, err := mountinfo()
	var points []string
	for _, l := range lines {
		if strings.HasPrefix(l.point, s.Dir+"/") {
			points = append(points, l.point)
		}
	}
	return points, err
}

func (s Scope) cgroups() ([]string, error) {
	dirs, err := s.cgroupDirs()
	if err != nil {
		return nil, err
	}
	machines, err := s.machines()
	var found []string
	for _, d := range append(dirs, machines...) {
		found = append(found, "cgroup "+d)
	}
	return found, err
}

// cgroupDirs lists the cgroups below the namespace's in every hierarchy.
func (s Scope) cgroupDirs() ([]string, error) {
	hierarchies, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, hierarchy := range hierarchies {
		procs, err := filepath.Glob(filepath.Join(hierarchy, s.Namespace, "*", "cgroup.procs"))
		if err != nil {
			return nil, err
		}
		for _, p := range procs {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	return dirs, nil
}

func (s Scope) files() ([]string, error) {
	var found []string
	for _, dir := range s.Empty {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			found = append(found, "file "+filepath.Join(dir, e.Name()))
		}
	}
	for _, path := range s.Absent {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, "file "+path)
		}
	}
	return found, nil
}

// Forget removes the namespace's own cgroup, which is empty and was the parent of the
// containers' cgroups.
func (s Scope) Forget() error {
	hierarchies, err := cgroupMounts()
	for _, hierarchy := range hierarchies {
		_ = os.Remove(filepath.Join(hierarchy, s.Namespace)) // absent in most hierarchies
	}
	return err
}

// RemoveCgroups removes the cgroups of the scope, which must be empty.
func (s Scope) RemoveCgroups() error {
	dirs, err := s.cgroupDirs()
	for _, d := range dirs {
		err = errors.Join(err, os.Remove(d))
	}
	return err
}

type mountLine struct{ point, kind string }

// cgroupMounts lists the mount points of the cgroup hierarchies.
func cgroupMounts() (points []string, err error) {
	lines, err := mountinfo()
	for _, l := range lines {
		if l.kind == "cgroup" || l.kind == "cgroup2" {
			points = append(points, l.point)
		}
	}
	return points, err
}

func mountinfo() ([]mountLine, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var lines []mountLine
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		before, after, _ := strings.Cut(s.Text(), " - ")
		fields := strings.Fields(before)
		kind, _, _ := strings.Cut(after, " ")
		lines = append(lines, mountLine{point: fields[4], kind: kind})
	}
	return lines, s.Err()
}

// PIDs lists the machine's processes.
func PIDs() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// CommandLine returns the command line of a process, with spaces between its arguments.
func CommandLine(pid int) string {
	b, err := os.ReadFile(procPath(pid, "cmdline"))
	if err != nil {
		return err.Error()
	}
	if len(b) == 0 { // as ps(1) shows a process without one
		b, _ = os.ReadFile(procPath(pid, "comm"))
		return "[" + strings.TrimSpace(string(b)) + "]"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// Descriptors lists the targets of a process's open files.
func Descriptors(pid int) ([]string, error) {
	dir := procPath(pid, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var targets []string
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err == nil {
			targets = append(targets, to)
		}
	}
	return targets, nil
}

func procPath(pid int, file string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), file)
}
