package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// killAgain is how long Kill waits for an empty cgroup before it writes cgroup.kill again, for a
// process that has entered the cgroup after the first time.
const killAgain = 100 * time.Millisecond

// killAtOnce writes cgroup.kill, by which the kernel kills all processes of a cgroup of
// version 2 (since Linux 5.14), and of those below it. No walk comes before: a container could
// make that as long as it likes. none reports whether there was no process, done whether the
// kernel has killed them. If both are false, the processes are to be killed one by one: the host
// has another version, or the kernel does not kill a threaded cgroup this way.
func (g *Group) killAtOnce() (none, done bool, err error) {
	if g.record.Version != 2 {
		return false, false, nil
	}
	dir := g.record.Dirs[""]
	events, err := proc.ReadOnce(filepath.Join(dir, "cgroup.events"))
	if isGone(err) || err == nil && empty(events) {
		return true, false, nil
	}
	if err := g.excludesSelf(dir); err != nil {
		return false, false, err
	}
	return false, proc.WriteFile(filepath.Join(dir, "cgroup.kill"), "1") == nil, nil
}

// empty reports whether the text of cgroup.events says that there is no process in the cgroup and
// below it.
func empty(events []byte) bool { return keyed(events)["populated"] == 0 }

// awaitEmpty waits for the end of killed processes.
func (g *Group) awaitEmpty(ctx context.Context) (none bool, err error) {
	f, err := os.Open(filepath.Join(g.record.Dirs[""], "cgroup.events"))
	if err != nil {
		return isGone(err), unlessGone(err)
	}
	defer f.Close()
	limit, cancel := context.WithTimeout(ctx, killAgain)
	defer cancel()
	err = awaitChange(limit, f, func(events []byte) (bool, error) { return empty(events), nil })
	switch {
	case err == nil || isGone(err):
		return true, nil
	case ctx.Err() != nil:
		pids, _ := g.Pids()
		return false, fmt.Errorf("processes survive SIGKILL: %w: %w", usedBy(pids), context.Cause(ctx))
	case !errors.Is(err, context.DeadlineExceeded):
		return false, err
	}
	return false, nil
}

// excludesSelf returns an error if this process is in the cgroup or below it. It compares the
// paths of the cgroups. If the mount does not show this process's cgroup at its path, as in a
// container whose mount shows a part of the hierarchy, it lists the processes instead.
func (g *Group) excludesSelf(dir string) error {
	all, err := Own()
	if err != nil {
		return err
	}
	own := filepath.Join(mountOf(dir), all[""])
	if pids, err := pidsIn(atPath(own)); err != nil || !slices.Contains(pids, os.Getpid()) {
		_, err := g.killable()
		return err
	}
	if strings.HasPrefix(own+"/", dir+"/") {
		return errSelf()
	}
	return nil
}

// mountOf returns the directory on which the hierarchy of a cgroup is mounted.
func mountOf(dir string) string {
	var st, above unix.Stat_t
	if unix.Stat(dir, &st) != nil {
		return dir
	}
	for dir != "/" && unix.Stat(filepath.Dir(dir), &above) == nil && above.Dev == st.Dev {
		dir = filepath.Dir(dir)
	}
	return dir
}

func errSelf() error { return fmt.Errorf("this process, %d, is in it: not killed", os.Getpid()) }
