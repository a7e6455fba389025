package supervisor

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/wire"
)

// enter serves enter: it executes a further program in an app that was added and has not
// ended. If it fails, or ctx ends before the exec has succeeded, nothing of the exec remains.
func (s *Supervisor) enter(ctx context.Context, c *wire.Call, r *abi.Request) error {
	a, err := s.app(ctx, r.App)
	if err != nil {
		return err
	}
	n := name{r.App, r.Exec}
	if err := s.reserveExec(a, n); err != nil {
		return err
	}
	defer s.launches.Done()
	l, err := s.beginExec(ctx, a, c, r)
	if err != nil {
		s.forgetExec(n)
		return err
	}
	defer l.words.Close()
	err = l.executed(ctx)
	if err == nil {
		err = s.commitExec(n, l.child)
	}
	if err != nil {
		s.forgetExec(n)
		status := l.child.Drop()
		if err == errDied && gone(a.launch.child.Signal(0)) {
			return stoppedUnderneath(a) // its end has killed the exec
		}
		return explain(ctx, err, l.child.PID(), status)
	}
	report(c.Ready, l.child.PID(), l.child.StartTime())
	return nil
}

// beginExec starts the process of an exec.
func (s *Supervisor) beginExec(ctx context.Context, a *app, c *wire.Call, r *abi.Request) (*launch, error) {
	files, err := stdio(c, r)
	if err != nil {
		return nil, err
	}
	process, err := decodeProcess(r.Process)
	if err != nil {
		return nil, err
	}
	groups, err := openCgroups(r.Cgroup)
	if err != nil {
		return nil, err
	}
	defer groups.close()
	prepared, err := container.PrepareExec(container.ExecRequest{
		Request: *r, Process: process, App: a.spec, CgroupFiles: groups.tasks,
		JoinsUserNamespace: a.joins&unix.CLONE_NEWUSER != 0, Filters: &s.filters,
	})
	if err != nil {
		return nil, err
	}
	l := &launch{prepared: prepared, console: r.ConsoleSocket}
	if err := s.startExec(ctx, l, a, r, files, groups); err != nil {
		prepared.Close()
		if gone(err) {
			err = stoppedUnderneath(a)
		}
		return nil, err
	}
	return l, nil
}

// stoppedUnderneath returns the error of an exec whose app has ended meanwhile.
func stoppedUnderneath(a *app) error {
	return precondition("app %s: cannot execute a program in a %s process", a.name, ended)
}

// startExec clones into the namespaces and the cgroup of an app.
func (s *Supervisor) startExec(ctx context.Context, l *launch, a *app, r *abi.Request, files [3]*os.File, groups cgroups) error {
	pidfd, err := a.launch.child.Pidfd()
	if err != nil {
		return err
	}
	defer pidfd.Close()
	join := fork.Join{What: "the namespaces of app " + a.name, File: pidfd, Flags: a.joins}
	begin := func(dir *os.File) error {
		return l.start(ctx, s, name{r.App, r.Exec}.String(), files, &fork.Process{
			Joins:  []fork.Join{join},
			Root:   a.joins&unix.CLONE_NEWUSER != 0,
			Cgroup: dir,
			Apart:  dir != nil, // the app may be paused meanwhile
		})
	}
	err = begin(groups.dir)
	if groups.dir == nil || !errors.Is(err, unix.EBUSY) {
		return err
	}
	path, innerErr := inner(r.Cgroup.Dirs[0], a.launch.child.PID())
	if innerErr != nil {
		return errors.Join(err, innerErr)
	}
	dir, innerErr := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if innerErr != nil {
		return errors.Join(err, innerErr)
	}
	defer dir.Close()
	return begin(dir)
}

// reserveExec takes an id for an exec that is being made. The caller calls launches.Done, and
// forgetExec if the exec fails.
func (s *Supervisor) reserveExec(a *app, n name) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return errStopping
	case !a.state.alive():
		return precondition("%s: cannot execute a program in a %s process", n, a.state)
	case n.exec == "":
		return errors.New("enter: the request names no exec")
	}
	if _, ok := s.execs[n]; ok {
		return precondition("%s: there is one of that id already", n)
	}
	s.execs[n] = nil
	s.launches.Add(1)
	return nil
}

// commitExec makes a running exec known.
func (s *Supervisor) commitExec(n name, c *proc.Child) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return errStopping
	}
	s.execs[n] = c
	s.keep(n, c)
	return nil
}

func (s *Supervisor) forgetExec(n name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.execs, n)
}
