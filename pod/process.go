package pod

import (
	"context"
	"fmt"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// process is what an app's first process and an exec have in common: a state,
// an exit, streams. It publishes its own events, in order, whatever the order in
// which the facts arrive: an exit that is known before the start call returned
// waits for it.
type process struct {
	app      AppID
	exec     ExecID // empty for the app's first process
	stdio    Stdio
	terminal bool
	events   Events

	// done is closed when exit is final: the process has ended and its exit was
	// published, or its start has failed.
	done chan struct{}
	// noticed is closed when the end of the process has been told of, published
	// or not.
	noticed chan struct{}

	mu       sync.Mutex
	state    State
	pid      int
	start    uint64 // start time of pid
	recorder Recorder
	made     *Process // as the stage1 has described it
	exit     Exit
	early    *Exit // an exit that arrived before the create or start was published
	hungry   bool  // the same for a lack of memory
	fatal    int   // the first signal that was to end it before its start
	// announcing is set while a step is being published: an exit that is seen in
	// between has to wait, too.
	announcing bool
	out        bool // done is closed
	told       bool // noticed is closed

	deletion *deletion // nil before the first Delete, and after one that failed
}

func newProcess(app AppID, exec ExecID, stdio Stdio, terminal bool, events Events) *process {
	return &process{app: app, exec: exec, stdio: stdio, terminal: terminal, events: events, done: make(chan struct{}), noticed: make(chan struct{})}
}

// name is what errors call the process.
func (p *process) name() string {
	if p.exec == "" {
		return string(p.app)
	}
	return fmt.Sprintf("%s (exec %s)", p.app, p.exec)
}

func (p *process) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	if s == Starting {
		s = Created
	}
	return Status{PID: p.pid, State: s, Exit: p.exit, Terminal: p.terminal, Deleting: p.deletion != nil}
}

// step moves the process and returns the error of an illegal move.
func (p *process) step(t step) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stepLocked(t)
}

// legal tells why a step would be refused now.
func (p *process) legal(t step) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.state.next(t, p.name())
	return err
}

func (p *process) stepLocked(t step) error {
	next, err := p.state.next(t, p.name())
	if err != nil {
		return err
	}
	p.state = next
	return nil
}

// exists takes up a process that was made.
func (p *process) exists(made *Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.start, p.recorder = made.PID, made.StartTime, made.Recorder
	p.made = made
}

// send signals a pid, which the caller got from alive, or what stands in its place.
func (p *process) send(pid int, start uint64, sig syscall.Signal) error {
	p.mu.Lock()
	made := p.made
	p.mu.Unlock()
	if sig != 0 && made != nil && made.Signal != nil {
		return made.Signal(sig)
	}
	return send(pid, start, sig)
}

// resize gives the process's terminal a size.
func (p *process) resize(size Size) error {
	if !p.terminal {
		return nil
	}
	if err := p.stdio.Resize(size); err != nil {
		return err
	}
	p.mu.Lock()
	made := p.made
	p.mu.Unlock()
	if made == nil || made.Signal == nil {
		return nil
	}
	return made.Signal(syscall.SIGWINCH)
}

// recordedBy tells who records the process's exit.
func (p *process) recordedBy() Recorder {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recorder
}

// created ends a create call, started a start call with success, from Creating
// or Starting, which the caller has made.
func (p *process) created() { _ = p.arrived(stepCreated, EventCreated) }

func (p *process) started(kind EventKind) { _ = p.arrived(stepStarted, kind) }

// arrived takes a step and publishes it, and after it the exit if that is known
// by then (requirement X2). A step that is not legal any more is not published.
func (p *process) arrived(t step, kind EventKind) error {
	p.mu.Lock()
	if err := p.stepLocked(t); err != nil {
		p.mu.Unlock()
		return err
	}
	p.announcing = true
	pid := p.pid
	p.mu.Unlock()
	p.events.Publish(Event{Kind: kind, App: p.app, Exec: p.exec, PID: pid})
	if early := p.announced(); early != nil {
		p.exited(*early)
	}
	return nil
}

// announced publishes what has waited for a step to be published, and returns
// the exit if that has, too.
func (p *process) announced() (early *Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.hungry {
		p.hungry = false
		p.mu.Unlock()
		p.events.Publish(Event{Kind: EventOOM, App: p.app})
		p.mu.Lock()
	}
	early, p.early = p.early, nil
	p.announcing = false
	return early
}

// starved publishes that the kernel has killed in the app for want of memory,
// after the start and before the exit.
func (p *process) starved() {
	p.mu.Lock()
	switch {
	case p.state == Stopped || p.state == Deleted:
		p.mu.Unlock()
		return
	case p.state == Starting || p.state == Creating || p.announcing:
		p.hungry = true
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	p.events.Publish(Event{Kind: EventOOM, App: p.app})
}

// unstarted ends the start call of an exec with failure: the exec stays until it
// is deleted, and whoever waits for it returns (requirement T2).
func (p *process) unstarted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.stepLocked(stepUnstart)
	p.pid, p.early, p.hungry = 0, nil, false
	p.finishLocked()
}

// perished ends the process without an event: it never ran the user's program.
func (p *process) perished(e Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.exit, p.early, p.hungry = Stopped, e, nil, false
	p.finishLocked()
}

// exited publishes the end of a process, once.
func (p *process) exited(e Exit) {
	p.mu.Lock()
	if !p.told {
		p.told = true
		close(p.noticed)
	}
	if p.state == Starting || p.state == Creating || p.announcing {
		p.early = &e
		p.mu.Unlock()
		return
	}
	e = p.causeLocked(e)
	if err := p.stepLocked(stepExited); err != nil { // already known, or never made
		p.mu.Unlock()
		return
	}
	p.exit = e
	pid := p.pid
	p.mu.Unlock()
	p.events.Publish(Event{Kind: EventExited, App: p.app, Exec: p.exec, PID: pid, Exit: e})
	p.mu.Lock()
	p.finishLocked()
	p.mu.Unlock()
}

// condemn notes the first signal that is to end a process which was not started. It is
// delivered as SIGKILL, because the process, PID 1 of its namespace as a rule, would
// survive it; to clients the process has died of what they have sent. What could not
// be delivered is taken back by pardon.
func (p *process) condemn(sig int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != Created || p.fatal != 0 || !proc.Fatal(syscall.Signal(sig)) {
		return false
	}
	p.fatal = sig
	return true
}

func (p *process) pardon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fatal = 0
}

// causeLocked returns an exit with the signal that was sent, if that has become
// SIGKILL on its way.
func (p *process) causeLocked(e Exit) Exit {
	if p.state == Created && p.fatal != 0 && e.Code == 128+uint32(killSignal) {
		e.Code = 128 + uint32(p.fatal)
	}
	return e
}

// discard lets go of everybody who waits for a process that is being deleted.
func (p *process) discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finishLocked()
}

func (p *process) finishLocked() {
	if !p.out {
		p.out = true
		close(p.done)
	}
}

// wait returns the exit, at once if it is known.
func (p *process) wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return Exit{}, fmt.Errorf("wait for %s: %w", p.name(), ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, nil
}

// alive returns the pid to act on, or why there is none.
func (p *process) alive() (pid int, start uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state == Stopped || p.state == Deleted:
		return 0, 0, fmt.Errorf("%s: process already finished: %w", p.name(), errdefs.ErrNotFound)
	case p.pid == 0:
		return 0, 0, fmt.Errorf("%s: process was not started: %w", p.name(), errdefs.ErrFailedPrecondition)
	}
	return p.pid, p.start, nil
}
