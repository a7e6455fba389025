package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/container"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// enter serves the entrypoint enter: it executes a further program in an app that was added
// and has not ended. If it fails, or ctx ends before the exec has succeeded, nothing of the
// exec remains.
func (s *Supervisor) enter(ctx context.Context, c *serve.Asked) error {
	r := c.Request
	a, err := s.app(ctx, r.App)
	if err != nil {
		return err
	}
	n := name{r.App, r.Exec}
	if err := s.reserveExec(a, n); err != nil {
		return err
	}
	defer s.making.Done()
	i, err := s.beginExec(ctx, a, c)
	if err != nil {
		s.forgetExec(n)
		return err
	}
	defer i.words.Close()
	err = i.executed(ctx)
	if err == nil {
		err = s.commitExec(n, i.child)
	}
	if err != nil {
		s.forgetExec(n)
		status := i.child.Drop()
		if err == errDied && gone(a.init.child.Signal(0)) {
			return stoppedUnderneath(a) // the end of the app has killed the exec
		}
		return explain(ctx, err, i.child.PID(), status)
	}
	c.Ready(abi.Ready{PID: i.child.PID(), StartTime: i.child.StartTime(), Recorder: abi.RecorderStage1})
	return nil
}

// beginExec starts the process of an exec.
func (s *Supervisor) beginExec(ctx context.Context, a *app, c *serve.Asked) (*initProcess, error) {
	r := c.Request
	files, err := stdio(c)
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
	chroot, err := a.openChroot()
	if err != nil {
		return nil, err
	}
	defer chroot.Close()
	prepared, err := container.PrepareExec(container.ExecRequest{
		Request: *r, Process: process, App: a.spec, CgroupFiles: groups.tasks, Chroot: chroot,
		JoinsUserNamespace: a.joins&unix.CLONE_NEWUSER != 0, Filters: &s.filters,
	})
	if err != nil {
		return nil, err
	}
	i := &initProcess{prepared: prepared, console: r.ConsoleSocket}
	i.listener = func(pid int, listener *os.File) error { return s.tellAgent(a, pid, listener) }
	if err := s.startExec(ctx, i, a, r, files, groups); err != nil {
		prepared.Close()
		if gone(err) {
			err = stoppedUnderneath(a)
		}
		return nil, err
	}
	return i, nil
}

// openChroot opens the root of an app without a mount namespace. For any other app it
// returns nil, because an exec gets the root with the app's mount namespace.
func (a *app) openChroot() (*os.File, error) {
	if a.chroot == "" {
		return nil, nil
	}
	f, err := os.OpenFile(a.chroot, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the root of app %s: %w", a.name, err)
	}
	return f, nil
}

// stoppedUnderneath returns the error of an exec whose app has ended meanwhile.
func stoppedUnderneath(a *app) error {
	return precondition("app %s: cannot execute a program in a %s process", a.name, ended)
}

// startExec clones into the namespaces and the cgroup of an app.
func (s *Supervisor) startExec(ctx context.Context, i *initProcess, a *app, r *abi.Request, files [3]*os.File, groups cgroups) error {
	pidfd, err := a.init.child.Pidfd()
	if err != nil {
		return err
	}
	defer pidfd.Close()
	join := fork.Join{What: "the namespaces of app " + a.name, File: pidfd, Flags: a.joins}
	begin := func(dir *os.File) error {
		return i.start(ctx, s, name{r.App, r.Exec}.String(), files, &fork.Process{
			Joins:  []fork.Join{join},
			Root:   a.joins&unix.CLONE_NEWUSER != 0,
			Cgroup: dir,
			Apart:  dir != nil, // the app may be paused during the clone
		})
	}
	err = begin(groups.dir)
	if groups.dir == nil || !errors.Is(err, unix.EBUSY) {
		return err
	}
	path, innerErr := inner(r.Cgroup.Dirs[0], a.init.child.PID())
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

// reserveExec reserves an id for an exec that is being made. The caller calls making.Done,
// and forgetExec if the exec fails.
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
	s.making.Add(1)
	return nil
}

// commitExec registers a running exec.
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
