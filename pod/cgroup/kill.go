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

// freezeTries bounds how often the version 1 freezer is asked: against processes
// that fork it may never succeed. It is asked only where there is no pids
// controller.
const freezeTries = 50

// Kill ends every process in the cgroup and below with SIGKILL, frozen ones too,
// and returns when none is left, or with ctx. It refuses to kill this process,
// whichever of its threads is there: then nobody is killed. Nothing is meant to
// live in the cgroup afterwards.
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

// killOnce kills whoever is there and waits for their end. It tells whether
// there was nobody.
func (g *Group) killOnce(ctx context.Context) (none bool, err error) {
	pids, err := g.mortals()
	if err != nil || len(pids) == 0 {
		return err == nil, err
	}
	victims, err := g.strike()
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

// mortals lists all processes, and refuses if one of them is not to be killed.
func (g *Group) mortals() ([]int, error) {
	pids, err := g.allPids()
	switch {
	case err != nil:
		return nil, fmt.Errorf("list its processes: %w", err)
	case len(pids) > 0 && pids[0] == 0:
		return nil, errors.New("it holds processes of a foreign PID namespace")
	case slices.Contains(pids, os.Getpid()):
		return nil, fmt.Errorf("this process, %d, is in it: not killed", os.Getpid())
	}
	return pids, nil
}

// strike sends SIGKILL to all processes that are there at one moment, and
// returns those that have not gone yet, for the caller to close.
func (g *Group) strike() ([]*proc.Process, error) {
	if g.killAtOnce() {
		return g.open()
	}
	victims, err := g.killEach()
	// Who has been sent SIGKILL does not fork any more. To hold the others only
	// now matters: a shell that cannot fork ends with an exit code of its own.
	if err == nil && g.grown(victims) {
		release := g.hold()
		var more []*proc.Process
		more, err = g.killEach()
		victims, err = append(victims, more...), errors.Join(err, release())
	}
	return victims, errors.Join(err, g.LetDie())
}

// killEach sends SIGKILL to process by process, and returns them.
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

// grown tells whether there are others than these.
func (g *Group) grown(known []*proc.Process) bool {
	pids, err := g.allPids()
	return err != nil || slices.ContainsFunc(pids, func(pid int) bool {
		return !slices.ContainsFunc(known, func(p *proc.Process) bool { return p.PID() == pid })
	})
}

// open returns the processes in the cgroup. It is listed once more after the
// pidfds were opened: a pid that had gone to somebody else before is not on the
// second list, and one that goes later is not followed by its pidfd.
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

// killAtOnce has the kernel kill the whole cgroup, which it can since Linux
// 5.14, on version 2.
func (g *Group) killAtOnce() bool {
	if g.record.Version != 2 {
		return false
	}
	err := os.WriteFile(filepath.Join(g.record.Dirs[""], "cgroup.kill"), []byte("1"), 0)
	return err == nil || isGone(err) && g.empty()
}

func (g *Group) empty() bool {
	pids, err := g.allPids()
	return err == nil && len(pids) == 0
}

// hold keeps the cgroup from growing, as well as it can, and returns how to let
// go of it: a frozen process does not die.
func (g *Group) hold() (release func() error) {
	if g.record.Version == 2 {
		file := filepath.Join(g.record.Dirs[""], "cgroup.freeze")
		_ = os.WriteFile(file, []byte("1"), 0)
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

// holdForks takes the right to fork from everybody in a version 1 cgroup, which
// does what freezing is not certain to do. Who has been sent SIGKILL meanwhile
// does not fork any more when it is given back.
func (g *Group) holdForks(file string) (release func() error) {
	limit, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte("0"), 0)
	}
	return func() error {
		thawed := g.thawAll()
		if err != nil {
			return thawed // the kill converges without it, if later
		}
		return errors.Join(thawed, write(file, strings.TrimSpace(string(limit))))
	}
}

// thawAll lets a frozen version 1 cgroup go on: also one that a client has
// paused, or whose processes have frozen each other.
func (g *Group) thawAll() error {
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

func hurriedFreeze(file string) {
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
