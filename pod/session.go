package pod

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// How long a supervisor may take to end after `stop`, and after `stop --force`. Then it is
// killed.
const (
	stopGrace  = 3 * time.Second
	forceGrace = 2 * time.Second
)

// noticeGrace is the time for reading notices that a supervisor wrote just before it ended.
const noticeGrace = 200 * time.Millisecond

func newSession(p *Pod, o owner, from origin) *session {
	s := &session{pod: p, owner: o, origin: from}
	s.networks.lasting, s.networks.end = context.WithCancel(context.Background())
	return s
}

// acquire returns the pod's session for an app. If there is none, it begins one. If the
// session is ending, it waits for the end first. The directory of the returned session
// exists; its stage1 may still be starting.
func (p *Pod) acquire(ctx context.Context, a *app) (*session, error) {
	for {
		p.mu.Lock()
		s := p.session
		if err := p.owner.admit("container " + string(a.id)); err != nil {
			p.mu.Unlock()
			return nil, err
		}
		begin := s == nil
		if begin {
			s = newSession(p, p.owner, a.origin())
			p.session = s
		}
		p.mu.Unlock()
		if begin {
			s.begin(ctx)
		}
		state, err := s.until(ctx, func(st sessionState) bool {
			return st.dirDecided() && !st.ends() || st == sessionGone
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("wait for the pod: %w", err)
		case state == sessionGone:
			continue
		case state == sessionFailed:
			return nil, s.failure("", s.err)
		}
		return s, nil
	}
}

// begin makes the pod directory and starts the stage1 in the background.
func (s *session) begin(ctx context.Context) {
	if err := s.make(ctx); err != nil {
		s.fail(err)
		return
	}
	s.step(sessionMake)
	s.step(sessionStart)
	go func() { _ = s.start(context.WithoutCancel(ctx)) }()
}

func (s *session) make(ctx context.Context) (err error) {
	// The stage1 will serve every app that comes, so the client that brought the first one
	// cannot cancel its start. Only the last app that leaves cancels it.
	s.starting, s.cancelStart = context.WithCancel(context.WithoutCancel(ctx))
	if s.stage1, err = s.pod.cfg.OpenStage1(ctx); err != nil {
		return err
	}
	var record disk.Stage1Record
	if s.pod.cfg.Choice != nil {
		record = s.pod.cfg.Choice()
	}
	record.Name, record.Digest = s.stage1.Name(), s.stage1.Digest()
	dir, err := s.pod.cfg.Store.Create(s.pod.cfg.Key, record, s.pod.cfg.Cgroups)
	if err != nil {
		return fmt.Errorf("make the pod directory: %w", err)
	}
	s.dir = dir
	s.undo.add(func() error { return dir.Remove(context.WithoutCancel(ctx)) })
	return nil
}

// start starts the stage1, unless cancelStart is called before the stage1 is ready.
func (s *session) start(ctx context.Context) error {
	if err := s.run(ctx); err != nil {
		if s.owner.outlivesApps() != nil { // a sandbox: no app has joined the session yet
			err = s.undo.run(s.failure("", err))
			s.undo = nil
		}
		s.fail(err)
		return err
	}
	s.step(sessionRuns)
	go s.listen(lasting(ctx))
	go func() {
		// Other processes may have the notice pipe open, but no more notices come.
		<-s.sup.Done
		_ = s.sup.Notices.SetReadDeadline(time.Now().Add(noticeGrace))
	}()
	return nil
}

func (s *session) run(ctx context.Context) error {
	if err := s.stage1.Attach(s.dir.Path()); err != nil {
		return err
	}
	s.undo.add(func() error { return s.stage1.Detach(s.dir.Path()) })
	s.undo.add(func() error { return s.dir.Evict(ctx) })
	if err := s.dir.Run(); err != nil {
		return err
	}
	c := s.call(abi.Run, "")
	c.Request.NoticeWords = true
	group, err := s.origin.describe(&c.Request, s.pod)
	if err != nil {
		return err
	}
	if s.stage1.Owns(abi.OwnNamespaces) {
		c.Request.Bundle, c.Spec = s.origin.bundle, s.origin.spec
	}
	s.origin.spec = nil // it is large, and a pod can live long
	if err := s.owner.beforeRun(ctx, &c, &s.undo); err != nil {
		return err
	}
	release := s.pod.cfg.Children.Expect() // a sandbox's holder may become a child of this process
	defer release()
	sup, err := s.stage1.Run(s.starting, c, s.dir.LockFile())
	if err != nil {
		return err
	}
	s.sup = *sup
	s.undo.add(func() error { return s.stopSupervisor(ctx) })
	if err := s.recordSupervisor(); err != nil {
		return err
	}
	if err := s.checkMachine(group); err != nil {
		return err
	}
	return s.owner.afterRun(ctx, sup.Leader)
}

// checkMachine returns an error if a process of the pod's VM, such as QEMU or virtiofsd, is outside of the
// cgroup by which the client limits the pod. These are the processes below the supervisor, which itself
// stays in the shim's cgroup.
func (s *session) checkMachine(group *cgroup.Group) error {
	if group == nil || !s.stage1.Owns(abi.OwnProcesses) {
		return nil
	}
	pids, err := proc.Descendants(s.sup.PID)
	if err != nil {
		return fmt.Errorf("look for the processes of the pod: %w", err)
	}
	for _, pid := range pids {
		if err := group.Contains(pid); err != nil {
			return fmt.Errorf("stage1 %s: the pod's cgroup: %w", s.stage1.Name(), err)
		}
	}
	return nil
}

// recordSupervisor leaves the lock to the supervisor, and records the supervisor on disk.
func (s *session) recordSupervisor() error {
	if err := s.dir.ReleaseLock(); err != nil {
		return err
	}
	start, err := proc.StartTime(s.sup.PID)
	if err != nil {
		return err
	}
	return s.dir.SetSupervisor(disk.SupervisorRecord{PID: s.sup.PID, StartTime: start, Leader: s.sup.Leader.PID})
}

// stopSupervisor kills a supervisor that serves no app yet. It calls stop first, because only
// the stage1 may know which processes the supervisor has started.
func (s *session) stopSupervisor(ctx context.Context) error {
	var err error
	if s.stage1.Has(abi.Stop) {
		c := s.call(abi.Stop, "")
		c.Force = true
		err = s.stage1.Invoke(ctx, c)
	}
	err = errors.Join(err, s.sup.Kill(), s.sup.Notices.Close())
	<-s.sup.Done
	return err
}

// listen reads the stage1's notices until the end of the pipe. If a line cannot be read, no
// exit is lost: the exit's record is read at the next notice or, at the latest, at the end
// of the pipe.
func (s *session) listen(ctx context.Context) {
	defer s.step(sessionStage1Ended)
	defer s.sup.Notices.Close()
	lines := bufio.NewScanner(s.sup.Notices)
	for lines.Scan() {
		n, err := abi.ParseNotice(lines.Text(), time.Now())
		if err != nil {
			s.log(ctx, err).Warnf("stage1 %s: %s", s.stage1.Name(), unread(n))
		}
		switch {
		case n.OOM:
			s.oomNoticed(ctx, n.App)
		case n.App != "":
			s.exitNoticed(ctx, n)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		s.log(ctx, err).Errorf("stage1 %s: its notices cannot be read any more; it counts as ended", s.stage1.Name())
	}
	s.endApps(ctx)
}

// unread describes the effect of a notice that could not be read completely.
func unread(n abi.Notice) string {
	if n.App == "" {
		return "notice ignored"
	}
	return "the record is read instead"
}

// oomNoticed reports that a process of an app was killed for want of memory.
func (s *session) oomNoticed(ctx context.Context, app string) {
	a := s.pod.byName(s, disk.AppName(app))
	switch {
	case !s.stage1.Owns(abi.OwnResources):
		s.log(ctx, nil).Warnf("stage1 %s: notice \"oom %.80s\" ignored: its image does not declare %s %s", s.stage1.Name(), app, abi.AnnotationOwn, abi.OwnResources)
	case a != nil:
		a.oomKilled()
	}
}

// exitNoticed reports the exit of a notice. A notice without an exit status is sent after
// the status was recorded.
func (s *session) exitNoticed(ctx context.Context, n abi.Notice) {
	a := s.pod.byName(s, disk.AppName(n.App))
	if a == nil {
		return // app/add has failed, or the app was deleted
	}
	q := a.process
	if n.Exec != "" {
		e, err := a.exec(ExecID(n.Exec))
		if err != nil {
			return // the exec was deleted
		}
		q = e.process
	}
	if n.Status == nil {
		st, err := abi.ReadStatus(s.statusDir(), n.App, n.Exec)
		if err != nil {
			a.logOf(ctx, q, err).Warnf("stage1 %s announced an exit without recording it; reported as 137", s.stage1.Name())
			st = killed()
		}
		n.Status = &st
	}
	a.ended(ctx, q, *n.Status)
}

// endApps is called at the end of the notice pipe. If the stage1 has ended by itself,
// endApps kills its apps.
func (s *session) endApps(ctx context.Context) {
	s.owner.stage1Ended(ctx)
	for _, a := range s.pod.members(s) {
		a.stage1Ended(ctx)
	}
}

// end stops the stage1 and removes the pod. It is called once per session, by the caller
// whose step sessionEnd was legal.
func (p *Pod) end(ctx context.Context, s *session) error {
	defer p.over(s)
	s.cancelStart()
	if s.await(sessionState.startDecided).without() {
		return s.undo.run(nil)
	}
	ctx = context.WithoutCancel(ctx)
	s.stop(ctx)
	return s.remove(ctx)
}

// over lets a new session begin.
func (p *Pod) over(s *session) {
	p.mu.Lock()
	if p.session == s {
		p.session = nil
	}
	p.mu.Unlock()
	s.step(sessionOver)
}

// endBehind removes the pod of a session whose last app is being deleted and whose stop was
// called. It does so in the background, so that the client of the deletion does not wait.
// It holds the pod's directory (Dir.Hold) until the removal is done: containerd calls
// `delete` for the app next, and `delete` then waits until the pod is gone. Close waits,
// too.
func (p *Pod) endBehind(ctx context.Context, s *session, last *disk.AppDir) error {
	remove := func() error {
		defer p.over(s)
		// Remove the file in the bundle that names the pod after the pod.
		return errors.Join(s.remove(ctx), last.RemoveBacklink())
	}
	release, err := s.dir.Hold()
	if err != nil {
		return errors.Join(err, remove())
	}
	go func() {
		defer release()
		if err := remove(); err != nil {
			s.logOf(ctx, AppID(last.Record().ID), "", err).Warnf("container %s: left behind by its deletion", last.Record().ID)
		}
	}()
	return nil
}

// remove waits until stop has returned, and removes the pod.
func (s *session) remove(ctx context.Context) error {
	s.await(sessionState.without)
	s.networks.stop()
	err := s.dir.MarkExited()
	if s.stage1.Has(abi.GC) {
		if gcErr := s.stage1.Invoke(ctx, s.call(abi.GC, "")); gcErr != nil {
			s.log(ctx, gcErr).Warnf("pod %s: gc failed; its directory is removed all the same", s.dir.UUID())
		}
	}
	err = errors.Join(err, s.owner.remove(ctx, func() error {
		if err := s.stage1.Detach(s.dir.Path()); err != nil {
			return err // a collector finds the rest in the directory
		}
		return s.dir.Remove(ctx)
	}))
	if err != nil {
		return fmt.Errorf("remove pod %s: %w", s.dir.UUID(), err)
	}
	return nil
}

// stop ends a stage1 that was up. It is called once per session, by the caller whose step
// sessionEnd was legal.
func (s *session) stop(ctx context.Context) {
	s.ending.Do(func() { s.endSupervisor(ctx) })
	s.await(sessionState.stage1Ended)
	s.step(sessionStop)
}

// endSupervisor ends the supervisor: by stop, by stop --force, and then by SIGKILL.
func (s *session) endSupervisor(ctx context.Context) {
	for _, force := range []bool{false, true} {
		if s.stage1.Has(abi.Stop) {
			c := s.call(abi.Stop, "")
			c.Force = force
			if err := s.stage1.Invoke(ctx, c); err != nil {
				s.log(ctx, err).Warnf("pod %s: stop failed", s.dir.UUID())
			}
		} else if err := s.terminate(force); err != nil {
			s.log(ctx, err).Warnf("pod %s: cannot signal its supervisor", s.dir.UUID())
		}
		grace := stopGrace
		if force {
			grace = forceGrace
		}
		if s.waitDone(grace) {
			return
		}
	}
	if err := s.sup.Kill(); err != nil {
		s.log(ctx, err).Errorf("pod %s: cannot kill its supervisor", s.dir.UUID())
	}
	<-s.sup.Done
}

// terminate signals the supervisor of a stage1 that has no stop.
func (s *session) terminate(force bool) error {
	if force {
		return s.sup.Kill()
	}
	return s.sup.Signal(syscall.SIGTERM)
}

func (s *session) waitDone(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-s.sup.Done:
		return true
	case <-t.C:
		return false
	}
}
