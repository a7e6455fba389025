package supervisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// cgroups has the files by which a new process enters its app's cgroup: tasks, dir, or, on a host
// with both versions, both. No thread of the supervisor enters it.
type cgroups struct {
	tasks []string   // version 1: the process opens them and writes "0" to them
	dir   *os.File   // version 2: the process is cloned into it
	files []*os.File // in place of both for a spawner: the process writes "0" to them
}

func openCgroups(c *abi.Cgroup) (g cgroups, err error) {
	dir, tasks, err := c.Ways()
	if err == nil && dir != "" {
		g.dir, err = proc.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	}
	if err != nil {
		return cgroups{}, fmt.Errorf("open the app's cgroup: %w", err)
	}
	g.tasks = tasks
	return g, nil
}

// devices returns the file of version 1 by which a process enters the devices cgroup, or "".
func (g cgroups) devices() string {
	if i := g.tasksOf("devices.allow"); i >= 0 {
		return g.tasks[i]
	}
	return ""
}

// tasksOf returns the index of the file of version 1 by which a process enters the cgroup that has this control, or -1.
func (g cgroups) tasksOf(control string) int {
	return slices.IndexFunc(g.tasks, func(tasks string) bool {
		_, err := os.Lstat(filepath.Join(filepath.Dir(tasks), control))
		return err == nil
	})
}

func (g cgroups) close() {
	g.dir.Close()
	for _, f := range g.files {
		f.Close()
	}
}

// inner returns the directory of a process's version 2 cgroup, which has to be dir or below
// dir. If an app has made cgroups below its own and has moved into one, its own cgroup
// accepts no process.
func inner(dir string, pid int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			if below, ok := within(dir, path); ok {
				return below, nil
			}
		}
	}
	return "", errors.New("the app is not below " + dir)
}

// within appends to an absolute directory the part of path that is below it. path begins at
// the root of cgroups: /sys/fs/cgroup/a/b and /a/b/c give /sys/fs/cgroup/a/b/c.
func within(dir, path string) (string, bool) {
	for above := path; above != "/" && above != "."; above = filepath.Dir(above) {
		if strings.HasSuffix(dir, above) {
			return dir + path[len(above):], true
		}
	}
	return "", false
}
