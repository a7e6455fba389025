package rktabi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable"
)

// statusGrace is how long after the end of an app's process its status file may be missing.
const statusGrace = 2 * time.Second

// start executes app/start, finds the process that app/start has made, moves it into the
// app's cgroup, and waits for its end in the background.
func (s *mutable) start(ctx context.Context, a *mutableApp, c pod.Call) error {
	defer close(a.settled)
	if err := immutable.MarkStarted(c.Dir, c.Request.App); err != nil {
		return err
	}
	files, err := watchDirs(c.Dir, abi.StatusDir)
	if err != nil {
		return err
	}
	release := s.Children.Expect() // the process may become a child of this process
	defer release()
	a.started.Store(true)
	go a.streams.carry(s, c, a)
	err = s.Stage1.Invoke(ctx, c)
	main := s.findMain(a)
	if err != nil {
		s.undoStart(a, main)
		files.close()
		return err
	}
	if main == nil {
		go a.awaitStatus(files, nil, s.run)
		return nil
	}
	// A stage1 of rkt does not start an app in the cgroup that a request names.
	moved := enterCgroups(a.call.Request.Cgroup, main.PID())
	if moved != nil && main.Alive() {
		s.undoStart(a, main)
		files.close()
		return fmt.Errorf("app %s: put it into its cgroup: %w", a.made.Name, moved)
	}
	a.main.Store(main)
	a.becomes <- abi.Ready{PID: main.PID(), StartTime: main.StartTime()}
	err = s.Children.Adopt(main.PID(), main.StartTime(), nil, func(e proc.Exit) {
		files.close()
		a.end(abi.Status(e))
		_ = main.Close()
	})
	if err != nil { // usually the process is a child of the pod's supervisor
		go a.awaitStatus(files, main, s.run)
	}
	return nil
}

// undoStart ends an app whose start has failed.
func (s *mutable) undoStart(a *mutableApp, main *proc.Process) {
	if main != nil {
		_ = main.Signal(syscall.SIGKILL)
		_ = main.Close()
	}
	_ = stage1.InTree(a.call.Dir, func(tree *os.Root) error { return tree.Remove(immutable.Mark(string(a.made.Name), immutable.Started)) })
	a.streams.close()
	a.end(abi.Status{Code: 128, Time: time.Now()})
}

// awaitStatus waits for the app's status file. The file is empty while it is written, and
// may stay empty if the pod ends. If the kernel has kept the exit of main, that exit takes
// precedence.
func (a *mutableApp) awaitStatus(files *watch, main *proc.Process, run *immutable.Launched) {
	defer files.close()
	var st abi.Status
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	recorded := nil == files.until(ctx, a.lastCall(ctx, main, run), func() (_ bool, err error) {
		st, err = abi.ReadStatus(stage1.StatusDir(a.call.Dir), a.call.Request.App, "")
		return err == nil, nil
	})
	if main != nil {
		known, ok := main.Exit()
		_ = main.Close()
		if ok && recorded {
			known.Time = st.Time
		}
		if ok {
			a.end(fromSystemd(abi.Status(known)))
			return
		}
	}
	if !recorded {
		st = abi.Status(proc.Killed())
	}
	a.end(fromRkt(st, int(a.told.Load())))
}

// lastCall returns a channel that is closed when no status can come any more: the pod has
// ended, or the process ended statusGrace ago.
func (a *mutableApp) lastCall(ctx context.Context, main *proc.Process, run *immutable.Launched) <-chan struct{} {
	if main == nil {
		return run.Call.Ended
	}
	last := make(chan struct{})
	go func() {
		defer close(last)
		if main.Wait(ctx) != nil {
			return
		}
		select {
		case <-run.Call.Ended:
		case <-time.After(statusGrace):
		case <-ctx.Done():
		}
	}()
	return last
}

// signal sends a signal to an app's first process, or to an exec's.
func (s *mutable) signal(ctx context.Context, a *mutableApp, c pod.Call) error {
	sig := syscall.Signal(c.Request.Signal)
	switch {
	case c.Request.Exec != "":
		return s.signalExec(c)
	case a == nil:
		return s.Refused("no such app", errdefs.ErrNotFound)
	case !a.started.Load():
		if proc.Fatal(sig) { // without a process, a fatal signal ends the app, and app/start will make no process
			a.end(abi.Status(proc.Killed()))
		}
		return nil
	}
	select {
	case <-a.settled:
	case <-ctx.Done():
		return fmt.Errorf("app %s: signal %d: wait for its start: %w", a.made.Name, sig, context.Cause(ctx))
	}
	main := a.main.Load()
	if main == nil {
		return fmt.Errorf("app %s: %w", a.made.Name, proc.ErrGone)
	}
	a.told.Store(int32(sig))
	return a.send(main, sig)
}

// findMain returns the first process of an app that was started: the one nearest to this
// process that is in the cgroup of the app's unit or has the app's root. If there is none,
// the program has ended and findMain returns nil.
func (s *mutable) findMain(a *mutableApp) *proc.Process {
	root := a.call.Request.Rootfs
	hosts, err := sameFile(root, "/") // then the root cannot identify the process
	if err != nil {
		return nil
	}
	self := os.Getpid()
	pid := firstFrom(self, func(pid int) bool {
		if pid == self || inUnit(pid, a.call.Request.App) {
			return pid != self
		}
		itsRoot, err := sameFile(fmt.Sprintf("/proc/%d/root", pid), root)
		return err == nil && itsRoot && !hosts
	})
	if pid == 0 {
		return nil
	}
	main, err := proc.Open(pid, 0)
	if err != nil {
		return nil
	}
	return main
}

// enterCgroups moves a process and its descendants, until it finds no new ones.
func enterCgroups(g *abi.Cgroup, pid int) error {
	if g == nil {
		return nil
	}
	moved := map[int]bool{}
	for more := true; more; {
		more = false
		all := []int{pid}
		for i := 0; i < len(all); i++ {
			all = append(all, immutable.ChildrenOf(all[i])...)
		}
		for _, p := range all {
			if moved[p] {
				continue
			}
			moved[p], more = true, true
			err := enterCgroup(g, p)
			if p == pid && err != nil {
				return err
			}
		}
	}
	return nil
}

func enterCgroup(g *abi.Cgroup, pid int) error {
	for _, dir := range slices.Sorted(slices.Values(g.All())) {
		err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Exit statuses of systemd itself, which rkt's stage1s record for an app that could not be
// executed. Clients expect the status of a shell instead.
const (
	systemdChdir = 200
	systemdExec  = 203
)

// fromRkt translates a status that rkt's stage1s have recorded. Its code is either an exit
// code or the number of the signal that has ended the app; the file does not say which. If
// the code equals told, the last signal that stage 0 has sent, fromRkt takes it for a
// signal.
func fromRkt(st abi.Status, told int) abi.Status {
	if st.Signal == 0 && st.Code != 0 && st.Code == told {
		st.Signal, st.Code = told, 128+told
	}
	return fromSystemd(st)
}

// fromSystemd translates the kernel's status of a process that systemd has started.
func fromSystemd(st abi.Status) abi.Status {
	if st.Code == systemdExec || st.Code == systemdChdir {
		st.Code = 127
	}
	return st
}
