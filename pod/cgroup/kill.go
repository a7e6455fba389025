package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// freezeTries bounds how often the version 1 freezer is tried, because it may never
// succeed while processes fork. It is only tried if there is no pids controller.
const freezeTries = 50

// Kill ends every process in the cgroup and below with SIGKILL, including frozen ones, and
// returns when no process is left or ctx is done. If any thread of this process is in the
// cgroup, Kill kills no process and returns an error. The cgroup must not be used after
// Kill.
func (g *Group) Kill(ctx context.Context) error {
	for {
		none, err := g.killOnce(ctx)
		if err != nil {
			return fmt.Errorf("cgroup %s: %w", g.Path(), err)
		}
		if none {
			return nil
		}
	}
}

// killOnce kills all processes that are there and waits for their end. none reports whether
// there was no process.
func (g *Group) killOnce(ctx context.Context) (none bool, err error) {
	if none, done, err := g.killAtOnce(); none || err != nil {
		return none, err
	} else if done {
		return g.awaitEmpty(ctx)
	}
	pids, err := g.killable()
	if err != nil || len(pids) == 0 {
		return err == nil, err
	}
	victims, err := g.killAll()
	defer closeAll(victims)
	if err != nil {
		return false, err
	}
	for _, p := range victims {
		if err := p.Wait(ctx); err != nil {
			return false, fmt.Errorf("process %d survives SIGKILL: %w", p.PID(), err)
		}
	}
	return false, ctx.Err()
}

// killable lists all processes. It returns an error if one of them must not be killed.
func (g *Group) killable() ([]int, error) {
	pids, err := g.allPids()
	switch {
	case err != nil:
		return nil, fmt.Errorf("list its processes: %w", err)
	case len(pids) > 0 && pids[0] == 0:
		return nil, errors.New("it holds processes of a foreign PID namespace")
	case slices.Contains(pids, os.Getpid()):
		return nil, errSelf()
	}
	return pids, nil
}

// killAll sends SIGKILL to all present processes. It returns the processes that have not
// ended yet. The caller closes them.
func (g *Group) killAll() ([]*proc.Process, error) {
	victims, err := g.killEach()
	// A process that was sent SIGKILL cannot fork. If there are other processes now, prevent
	// these from forking. This is not done earlier, because a shell that cannot fork ends
	// with an exit code of its own.
	if err == nil && g.grown(victims) {
		release := g.hold()
		var more []*proc.Process
		more, err = g.killEach()
		victims, err = append(victims, more...), errors.Join(err, release())
	}
	return victims, errors.Join(err, g.LetDie())
}

// killEach sends SIGKILL to one process after the other, and returns them.
func (g *Group) killEach() ([]*proc.Process, error) {
	victims, err := g.open()
	errs := []error{err}
	for _, p := range victims {
		if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
			errs = append(errs, err)
		}
	}
	return victims, errors.Join(errs...)
}

// grown reports whether the cgroup has processes other than these.
func (g *Group) grown(known []*proc.Process) bool {
	pids, err := g.allPids()
	return err != nil || slices.ContainsFunc(pids, func(pid int) bool {
		return !slices.ContainsFunc(known, func(p *proc.Process) bool { return p.PID() == pid })
	})
}

// open returns the processes in the cgroup. After it has opened the pidfds, it lists the
// cgroup again. If a pid was reused before its pidfd was opened, the pid is not in the
// second list. If it is reused later, the pidfd still refers to the old process.
func (g *Group) open() ([]*proc.Process, error) {
	pids, err := g.allPids()
	if err != nil {
		return nil, fmt.Errorf("list its processes: %w", err)
	}
	var ps []*proc.Process
	for _, pid := range pids {
		if p, err := proc.Open(pid, 0); err == nil {
			ps = append(ps, p)
		} else if !errors.Is(err, proc.ErrGone) {
			return ps, err
		}
	}
	now, err := g.allPids()
	if err != nil {
		return ps, fmt.Errorf("list its processes: %w", err)
	}
	return slices.DeleteFunc(ps, func(p *proc.Process) bool {
		if slices.Contains(now, p.PID()) {
			return false
		}
		_ = p.Close()
		return true
	}), nil
}

func closeAll(ps []*proc.Process) {
	for _, p := range ps {
		_ = p.Close()
	}
}

// hold prevents processes in the cgroup from forking, as far as possible. The caller must
// call release, because a frozen process does not end.
func (g *Group) hold() (release func() error) {
	if g.record.Version == 2 {
		file := filepath.Join(g.record.Dirs[""], "cgroup.freeze")
		_ = proc.WriteFile(file, "1")
		return func() error { return write(file, "0") }
	}
	if dir := g.record.Dirs["pids"]; dir != "" {
		return g.holdForks(filepath.Join(dir, "pids.max"))
	}
	if dir := g.record.Dirs["freezer"]; dir != "" {
		hurriedFreeze(filepath.Join(dir, "freezer.state"))
	}
	return g.thawAll
}

// holdForks sets the limit of a version 1 cgroup's pids controller so that no process can
// fork. Unlike freezing this always succeeds. Processes that were sent SIGKILL meanwhile do
// not fork after the limit is restored.
func (g *Group) holdForks(file string) (release func() error) {
	limit, err := proc.ReadOnce(file)
	if err == nil {
		err = proc.WriteFile(file, "0")
	}
	return func() error {
		thawed := g.thawAll()
		if err != nil {
			return thawed // without the freezer the kill needs more passes
		}
		return errors.Join(thawed, write(file, strings.TrimSpace(string(limit))))
	}
}

// thawAll thaws a version 1 cgroup and all cgroups below it, even if a client has paused it
// or its processes have frozen each other.
func (g *Group) thawAll() error {
	dir := g.record.Dirs["freezer"]
	if dir == "" {
		return nil
	}
	var errs []error
	err := walk(dir, func(p place) error {
		errs = append(errs, p.write("freezer.state", "THAWED"))
		return nil
	}, nil)
	return errors.Join(append(errs, err)...)
}

func hurriedFreeze(file string) {
	for range freezeTries {
		if err := proc.WriteFile(file, "FROZEN"); err != nil {
			return
		}
		if b, err := proc.ReadOnce(file); err != nil || string(b) == "FROZEN\n" {
			return
		}
	}
}

// write writes to a file of a cgroup. It is no error if the cgroup was removed meanwhile.
func write(file, value string) error { return unlessGone(proc.WriteFile(file, value)) }
