package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	child, err := s.execute(ctx, a, c)
	if err == nil {
		if ctx.Err() != nil || c.Gone() {
			err = errCallerGone
		} else {
			err = s.commitExec(n, child)
		}
		if err != nil {
			child.Drop()
		}
	}
	if err != nil {
		s.forgetExec(n)
		return err
	}
	c.Ready(abi.Ready{PID: child.PID(), StartTime: child.StartTime(), Recorder: abi.RecorderStage1})
	return nil
}

// executing is an exec that is being made.
type executing struct {
	app      *app
	request  *abi.Request
	files    [3]*os.File
	groups   cgroups
	prepared *container.Prepared
	late     bool // see enterLate
}

// execute makes the process of an exec and waits until it has executed its program. An
// ordinary process does that by a plan of system calls. It is made again by init if the plan
// cannot say what is asked for, and if one of its steps has failed: then nothing was executed,
// and the error is that of init. But an app that can take init over could make a step fail on purpose.
func (s *Supervisor) execute(ctx context.Context, a *app, c *serve.Asked) (*proc.Child, error) {
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
		Request: *r, Process: process, App: a.spec, Tasks: len(groups.tasks), Chroot: chroot,
		JoinsUserNamespace: a.joins&unix.CLONE_NEWUSER != 0, Filters: &s.filters,
	})
	if err != nil {
		return nil, err
	}
	e := &executing{app: a, request: r, files: files, groups: groups, prepared: prepared}
	defer prepared.Close()
	program, why := prepared.Program()
	if program != nil {
		child, err := s.executeByPlan(ctx, e, program)
		var failed *fork.Error
		if errors.As(err, &failed) && failed.Errno == unix.EAGAIN && s.mayEnterLate(e) {
			e.late = true
			child, err = s.executeByPlan(ctx, e, program)
		}
		switch {
		case errors.Is(err, errLimits): // no container can bring that about
		case !errors.As(err, &failed):
			return child, err
		case s.appsTrace():
			return nil, fmt.Errorf("exec %q: %w", process.Args[0], err)
		}
		s.countInit("execs", kindOf(err), err.Error())
		return s.executeByInit(ctx, e)
	}
	s.countInit("execs", why, why)
	return s.executeByInit(ctx, e)
}

// appsTrace reports whether an app of the pod can trace processes of the host's user namespace, if
// it sees them. A process that executes init has every right while it does.
func (s *Supervisor) appsTrace() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.apps {
		if a.spec == nil || a.spec.Process == nil || a.spec.Process.Capabilities == nil || a.joins&unix.CLONE_NEWUSER != 0 {
			continue
		}
		caps := a.spec.Process.Capabilities
		if slices.ContainsFunc(slices.Concat(caps.Bounding, caps.Permitted), func(name string) bool { return strings.EqualFold(name, "CAP_SYS_PTRACE") }) {
			return true
		}
	}
	return false
}

// executeByPlan makes the process of an exec without init. If a step has failed before the
// program was executed, the error unwraps to a *fork.Error.
func (s *Supervisor) executeByPlan(ctx context.Context, e *executing, program *fork.Program) (child *proc.Child, err error) {
	var begun *fork.Begun
	err = s.inApp(e, func(p *fork.Process) (err error) {
		p.Files, p.Program, p.Born = e.files[:], program, e.limit
		if e.late {
			e.enterLate(p)
		}
		child, err = s.Children.Make(func() (int, error) {
			if begun, err = fork.Begin(ctx, p); err != nil {
				return 0, err
			}
			return begun.PID, nil
		})
		return err
	})
	if begun != nil {
		defer begun.Close()
	}
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = child.Kill() })()
	master, err := begun.Executed()
	if err == nil && master != nil {
		err = s.Console(e.request, master)
		master.Close()
	}
	if err == nil {
		return child, nil
	}
	status := child.Drop()
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err == fork.ErrEnded:
		return nil, e.died(ctx, child, status)
	}
	return nil, err
}

// pidsMax is the control of the number of an app's processes.
const pidsMax = "pids.max"

// mayEnterLate reports whether enterLate may be called. On version 2 a process of an app that traces could take
// the new one over while it is outside of each limit of the app, and leave others there. On version 1 it is outside of no limit but
// that of processes.
func (s *Supervisor) mayEnterLate(e *executing) bool {
	return e.groups.tasksOf(pidsMax) >= 0 || e.groups.dir != nil && !s.appsTrace()
}

// enterLate has the process made outside of the cgroup that limits the app's processes, and moves it there while it
// waits. If the app has all processes that it may have, the kernel refuses each clone in that cgroup, and lets processes enter it. A
// move takes a grace period of the kernel, so other processes of execs do not need it: they are cloned in the cgroup.
func (e *executing) enterLate(p *fork.Process) {
	var file string
	if i := e.groups.tasksOf(pidsMax); i >= 0 {
		file, p.Tasks = p.Tasks[i], slices.Delete(slices.Clone(p.Tasks), i, i+1)
	} else {
		file, p.Cgroup = filepath.Join(p.Cgroup.Name(), "cgroup.procs"), nil
	}
	p.Born = func(pid int) error {
		if err := proc.WriteFile(file, strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("enter the app's cgroup: %w", err)
		}
		return e.limit(pid)
	}
}

// errLimits is the error if the limits of a process of another user cannot be set from outside, which takes
// CAP_SYS_RESOURCE.
var errLimits = errors.New("the limits of another user's process cannot be set")

func (e *executing) limit(pid int) error {
	err := e.prepared.Limit(pid)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: %w", errLimits, err)
	}
	return err
}

// executeByInit makes the process of an exec by init.
func (s *Supervisor) executeByInit(ctx context.Context, e *executing) (*proc.Child, error) {
	i := &initProcess{prepared: e.prepared, console: func(master *os.File) error { return s.Console(e.request, master) }}
	i.listener = func(pid int, listener *os.File) error { return s.tellAgent(e.app, pid, listener) }
	err := s.inApp(e, func(p *fork.Process) error {
		p.Devices = e.groups.devices()
		return i.start(ctx, s, name{e.request.App, e.request.Exec}.String(), e.files, p)
	})
	if err != nil {
		return nil, err
	}
	defer i.words.Close()
	if err = i.executed(ctx); err == nil {
		return i.child, nil
	}
	status := i.child.Drop()
	if err == errDied {
		return nil, e.died(ctx, i.child, status)
	}
	return nil, err
}

// died returns the error of a process that has ended before its program was executed.
func (e *executing) died(ctx context.Context, child *proc.Child, status proc.Exit) error {
	if gone(e.app.init.child.Signal(0)) {
		return stoppedUnderneath(e.app) // the end of the app has killed the exec
	}
	return explain(ctx, errDied, child.PID(), status)
}

// countInit counts apps or execs that init makes. The log has how many they are, by the kind of reason,
// at powers of two, and the last reason. There are few kinds, but errors name paths, and a pod may run for years.
func (s *Supervisor) countInit(what, kind, why string) {
	key := what + " " + kind
	s.mu.Lock()
	s.byInit[key]++
	n := s.byInit[key]
	s.mu.Unlock()
	if n&(n-1) == 0 {
		fmt.Fprintf(s.Log, "%d %s by init: %s\n", n, what, why)
	}
}

// kindOf returns the kind of a plan's failure: the number of the kernel's error.
func kindOf(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return "another error"
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
	return serve.Precondition("app %s: cannot execute a program in a %s process", a.name, ended)
}

// inApp calls begin with a process that joins the namespaces of an app and is in its cgroup.
func (s *Supervisor) inApp(e *executing, begin func(*fork.Process) error) error {
	a := e.app
	pidfd, err := a.init.child.Pidfd()
	if err == nil {
		defer pidfd.Close()
		join := fork.Join{What: "the app's namespaces", File: pidfd, Flags: a.joins}
		in := func(dir *os.File) error {
			return begin(&fork.Process{
				Joins:  []fork.Join{join},
				Root:   a.joins&unix.CLONE_NEWUSER != 0,
				Cgroup: dir,
				Tasks:  e.groups.tasks,
				Apart:  dir != nil, // the app may be paused during the clone
			})
		}
		err = in(e.groups.dir)
		if e.groups.dir != nil && errors.Is(err, unix.EBUSY) {
			err = e.inInner(in, err)
		}
	}
	if gone(err) {
		err = stoppedUnderneath(a)
	}
	return err
}

// inInner calls begin with the version 2 cgroup in which the app's first process is, after the
// app's own has accepted no process.
func (e *executing) inInner(begin func(dir *os.File) error, err error) error {
	path, innerErr := inner(e.groups.dir.Name(), e.app.init.child.PID())
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
		return serve.Precondition("%s: cannot execute a program in a %s process", n, a.state)
	case n.exec == "":
		return errors.New("enter: the request names no exec")
	}
	if _, ok := s.execs[n]; ok {
		return serve.Precondition("%s: there is one of that id already", n)
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

// Execs returns the ids of an app's execs, by the pids of their first processes.
func (s *Supervisor) Execs(app string) map[int]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[int]string{}
	for n, c := range s.execs {
		if n.app == app && c != nil {
			ids[c.PID()] = n.exec
		}
	}
	return ids
}

func (s *Supervisor) forgetExec(n name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.execs, n)
}
