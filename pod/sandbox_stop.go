package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
)

// StopSandbox ends every app of the pod, and then the holder of its namespaces. With
// a grace period it sends SIGTERM to the apps first, and SIGKILL after that time.
// StopSandbox is legal in every state. Apps that have ended have a Status until they
// are deleted.
func (p *Pod) StopSandbox(ctx context.Context, id string, grace time.Duration) error {
	sb, err := p.findSandbox(id)
	if err != nil {
		return err
	}
	sb.session.await(sessionState.dirDecided)
	if sb.stopUnstarted() {
		sb.session.fail(fmt.Errorf("sandbox %s was stopped before it was started: %w", id, errdefs.ErrFailedPrecondition))
		return nil
	}
	_ = sb.step(stepSandboxStop) // illegal if it has stopped, or if an earlier call is in progress
	if sb.current() == SandboxCanceling {
		sb.session.cancelStart()
	}
	decided, err := sb.session.until(ctx, sessionState.startDecided)
	if err != nil {
		return fmt.Errorf("stop sandbox %s: wait for its start: %w", id, err)
	}
	if decided.without() {
		return nil // no process of it runs
	}
	p.endDebugs(ctx, nil)
	err = p.killApps(ctx, grace)
	sb.holder.kill(ctx)
	if _, waitErr := sb.until(ctx, SandboxState.stopped); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("its holder %d was killed and does not end: %w", sb.holder.pid, waitErr))
	}
	if err == nil {
		err = sb.endStage1(ctx)
	}
	if err != nil {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

// endStage1 ends the stage1 of a sandbox that has stopped: containerd may keep the sandbox for days before it calls
// ShutdownSandbox, and nothing needs the supervisor then. ShutdownSandbox waits for an end that takes longer than ctx.
func (sb *sandbox) endStage1(ctx context.Context) error {
	s := sb.session
	go s.ending.Do(func() { s.endSupervisor(context.WithoutCancel(ctx)) })
	if _, err := s.until(ctx, sessionState.stage1Ended); err != nil {
		return fmt.Errorf("its stage1 %s does not end: %w", s.stage1.Name(), err)
	}
	return nil
}

// stopUnstarted stops a sandbox that was not started. It returns false for any other
// sandbox.
func (sb *sandbox) stopUnstarted() bool {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.state != SandboxCreated {
		return false
	}
	sb.endLocked(Exit{At: time.Now()})
	return true
}

// ShutdownSandbox stops the sandbox, deletes the remaining apps, and removes the pod.
// The pod accepts no app after that.
func (p *Pod) ShutdownSandbox(ctx context.Context, id string) error {
	sb, err := p.findSandbox(id)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx) // containerd sends no second ShutdownSandbox
	limit, cancel := context.WithTimeout(ctx, shutdownLimit)
	defer cancel()
	if err := p.StopSandbox(limit, id, 0); err != nil {
		sb.session.log(ctx, err).Warn("shut down a sandbox that does not stop")
	}
	for _, a := range p.all() {
		if _, err := a.delete(limit); err != nil && !errdefs.IsNotFound(err) {
			Log(ctx, a.id, "", err).Warnf("container %s: not deleted with its sandbox", a.id) // it may have no session yet
		}
	}
	s := sb.session
	if !s.step(sessionEnd) {
		s.await(func(st sessionState) bool { return st == sessionGone })
		return nil
	}
	err = p.end(ctx, s)
	p.mu.Lock()
	p.owner = shutDown{}
	p.mu.Unlock()
	return err
}

// shutdownLimit is how long the deletion of apps may take. containerd does not say
// how long it waits.
const shutdownLimit = 10 * time.Second
