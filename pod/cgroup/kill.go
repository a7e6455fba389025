package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/pod/proc"
)

// freezeTries bounds how often the version 1 freezer is asked: against processes
// that fork it may never succeed. It is asked only where there is no pids
// controller.
const freezeTries = 50

// Kill ends every process in the cgroup and below with SIGKILL, frozen ones too,
// and returns when none is left, or with ctx. It refuses to kill this process,
// whichever of its threads is there: then nobody is killed. Nothing is meant to
// live in the cgroup afterwards: it may be frozen for new processes.
func (g *Group) Kill(ctx context.Context) error {
	for {
		pids, err := g.allPids()
		if err != nil {
			return fmt.Errorf("cgroup %s: list its processes: %w", g.Path(), err)
		}
		if len(pids) == 0 {
			return nil
		}
		if pids[0] == 0 {
			return fmt.Errorf("cgroup %s: it holds processes of a foreign PID namespace", g.Path())
		}
		if slices.Contains(pids, os.Getpid()) {
			return fmt.Errorf("cgroup %s: this process, %d, is in it: not killed", g.Path(), os.Getpid())
		}
		if err := g.killOnce(ctx, pids); err != nil {
			return fmt.Errorf("cgroup %s: %w", g.Path(), err)
		}
	}
}

// killOnce kills what is there and waits for the end of those listed.
func (g *Group) killOnce(ctx context.Context, pids []int) error {
	victims, err := g.open(pids)
	defer func() {
		for _, p := range victims {
			_ = p.Close()
		}
	}()
	if err != nil {
		return err
	}
	if err := g.strike(victims); err != nil {
		return err
	}
	for _, p := range victims {
		if err := p.Wait(ctx); err != nil {
			return fmt.Errorf("process %d survives SIGKILL: %w", p.PID(), err)
		}
	}
	return ctx.Err()
}

// open returns those processes that still are in the cgroup. It is listed once
// more after the pidfds were opened: a pid that had gone to somebody else before
// is not on the second list, and one that goes later is not followed by its
// pidfd.
func (g *Group) open(pids []int) ([]*proc.Process, error) {
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

// strike sends the signals.
func (g *Group) strike(victims []*proc.Process) error {
	if g.record.Version == 2 {
		err := os.WriteFile(filepath.Join(g.record.Dirs[""], "cgroup.kill"), []byte("1"), 0)
		if err == nil || isGone(err) && g.empty() {
			return nil
		}
		// cgroup.kill came with Linux 5.14.
	}
	thaw := g.hold()
	var errs []error
	for _, p := range victims {
		if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proc.ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, thaw())...)
}

func (g *Group) empty() bool {
	pids, err := g.allPids()
	return err == nil && len(pids) == 0
}

// hold keeps the cgroup from growing while it is killed, as well as it can, and
// returns how to let the dead go: a frozen process does not die.
func (g *Group) hold() (release func() error) {
	if g.record.Version == 2 {
		file := filepath.Join(g.record.Dirs[""], "cgroup.freeze")
		_ = os.WriteFile(file, []byte("1"), 0)
		return func() error { return write(file, "0") }
	}
	if dir := g.record.Dirs["pids"]; dir != "" {
		// Nobody forks any more, so the killing converges without freezing.
		_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte("0"), 0)
	} else if dir := g.record.Dirs["freezer"]; dir != "" {
		freeze(filepath.Join(dir, "freezer.state"))
	}
	return g.thaw
}

// thaw lets a frozen version 1 cgroup go on: also one that a client has paused,
// or whose processes have frozen each other.
func (g *Group) thaw() error {
	dir := g.record.Dirs["freezer"]
	if dir == "" {
		return nil
	}
	return thawBelow(dir)
}

func thawBelow(dir string) error {
	err := write(filepath.Join(dir, "freezer.state"), "THAWED")
	subs, listErr := children(dir)
	err = errors.Join(err, listErr)
	for _, sub := range subs {
		err = errors.Join(err, thawBelow(sub))
	}
	return err
}

func freeze(file string) {
	for range freezeTries {
		if err := os.WriteFile(file, []byte("FROZEN"), 0); err != nil {
			return
		}
		if b, err := os.ReadFile(file); err != nil || string(b) == "FROZEN\n" {
			return
		}
	}
}

// write writes to a file of a cgroup that may be removed meanwhile.
func write(file, value string) error {
	if err := os.WriteFile(file, []byte(value), 0); !isGone(err) {
		return err
	}
	return nil
}
