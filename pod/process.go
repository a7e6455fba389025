package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const killSignal = int(syscall.SIGKILL)

// process is the common part of an app's first process and an exec: a state, an exit,
// streams, and a lane in the app's outbox, which decides when its events are published.
type process struct {
	app      AppID
	exec     ExecID // empty for the app's first process
	stdio    Stdio
	terminal bool
	events   Events
	tag      any   // of AppConfig or ExecConfig
	lane     *lane // of the app's outbox

	// stateOf has the state and mu, which also guards the fields below. mu is held while an
	// event is published. So a caller that sees a state knows that the event of that state
	// was published before.
	stateOf[State]
	pid   int     // 0 before there is a process
	start uint64  // start time of pid
	made  Process // as the stage1 has described it; zero before
	init  bool    // it is the first process of the app's PID namespace
	exit  Exit
	size  *Size // that a client has asked for last
	fatal int   // the first signal that should have ended it before its start, and so the cause of its exit
}

func newProcess(app AppID, exec ExecID, stdio Stdio, terminal bool, events Events, box *outbox) *process {
	p := &process{app: app, exec: exec, stdio: stdio, terminal: terminal, events: events}
	p.lane = box.lane(p.publish)
	return p
}

// name returns the name of the process for errors.
func (p *process) name() string {
	if p.exec == "" {
		return string(p.app)
	}
	return fmt.Sprintf("%s (exec %s)", p.app, p.exec)
}

func (p *process) status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Status{PID: p.pid, State: p.state.shown(), Exit: p.exit, Terminal: p.terminal, Deleting: p.state.deletes()}
}

// step moves the process and returns the error of an illegal move.
func (p *process) step(t step) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stepLocked(t)
}

// legal returns the error that a step would return now.
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
	p.moveLocked(next)
	return nil
}

// exists records the process that the stage1 has made, and whether the process is the first
// one of a PID namespace.
func (p *process) exists(made *Process, init bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.start, p.made, p.init = made.PID, made.StartTime, *made, init
}

// send signals the process by the stage1's function for that, if there is one, or else by
// its pid. pid and start are results of alive.
func (p *process) send(pid int, start uint64, sig syscall.Signal) error {
	if signal := p.description().Signal; signal != nil && sig != 0 {
		return signal(sig)
	}
	return proc.Signal(pid, start, sig)
}

// resize sets the size of the process's terminal.
func (p *process) resize(size Size) error {
	if !p.terminal {
		return nil
	}
	p.mu.Lock()
	p.size = &size
	p.mu.Unlock()
	if err := p.stdio.Resize(size); err != nil {
		return err
	}
	if signal := p.description().Signal; signal != nil {
		return signal(syscall.SIGWINCH)
	}
	return nil
}

// description returns the process as the stage1 has described it.
func (p *process) description() Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// endsAll reports whether the kernel kills all other processes of the app when this one
// ends.
func (p *process) endsAll() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.init
}

// stepOf has the steps that belong to events. Other events change no state.
var stepOf = map[EventKind]step{
	EventCreated:     stepCreated,
	EventStarted:     stepStarted,
	EventExecStarted: stepStarted,
	EventPaused:      stepPaused,
	EventResumed:     stepResumed,
	EventExited:      stepExited,
	EventDeleted:     stepDeleted,
}

// push passes an event to the outbox. If the event comes too late, push returns the error
// of its step, if it has one.
func (p *process) push(e Event) error {
	e.App, e.Exec, e.Tag = p.app, p.exec, p.tag
	err := p.lane.push(e)
	if t, ok := stepOf[e.Kind]; ok && errors.Is(err, errOver) {
		err = cmp.Or(p.legal(t), err)
	}
	return err
}

// publish makes the step that belongs to an event and publishes the event. The outbox calls
// it, in the order of events. If the start of the process has failed, publish makes the
// step for its exit and publishes no event.
func (p *process) publish(e Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := p.state
	if t, ok := stepOf[e.Kind]; ok {
		if err := p.stepLocked(t); err != nil {
			return err
		}
		e.PID = p.pid
	}
	if e.Kind == EventExited {
		e.Exit = p.causeLocked(from, e.Exit)
		p.exit = e.Exit
	}
	if from != Failing {
		p.events.Publish(e)
	}
	return nil
}

// beginStart begins a start call: from now on the outbox holds the events of the
// process.
func (p *process) beginStart() error {
	return p.lane.begin(func() error { return p.step(stepStart) })
}

// oomKilled reports that the kernel has killed a process of the app because memory ran out.
func (p *process) oomKilled() { _ = p.push(Event{Kind: EventOOM}) }

// exited reports the end of the process. Only the first report counts.
func (p *process) exited(e Exit) { _ = p.push(Event{Kind: EventExited, Exit: e}) }

// unstarted ends the start call of an exec that has failed. The exec stays until it is
// deleted, and calls that wait for its exit return (requirements.md#T2).
func (p *process) unstarted() {
	p.lane.unstart()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stepLocked(stepUnstart) == nil {
		p.pid = 0
	}
}

// giveUp records an exit for a process whose start has failed or hangs, without waiting for
// its real exit. No event of the process follows. If the start was published, giveUp does
// nothing and returns false.
func (p *process) giveUp(e Exit) bool {
	if !p.lane.drop() {
		return false
	}
	p.mu.Lock()
	if p.stepLocked(stepExited) == nil {
		p.exit = e
	}
	p.mu.Unlock()
	return true
}

// noteFatal records the first signal that should end a process which was not started, and
// reports whether sig is that signal. The caller sends SIGKILL in its place, because the
// process, usually PID 1 of its namespace, would ignore it. To clients the process has
// ended by the signal that they sent. If the signal cannot be sent, the caller calls
// forgetFatal.
func (p *process) noteFatal(sig int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !waits(p.state) || p.fatal != 0 || !proc.Fatal(syscall.Signal(sig)) {
		return false
	}
	p.fatal = sig
	return true
}

func (p *process) forgetFatal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fatal = 0
}

// waits reports whether the first process of an app in this state is blocked before its
// exec.
func waits(s State) bool { return s == Created || s == Discarding }

// failedStart is the exit code of an app that could not be started.
const failedStart = 128

// causeLocked returns the exit that clients see. from is the state in which the process
// ended. If a client has signalled a created process, SIGKILL was sent, but the exit names
// the client's signal.
func (p *process) causeLocked(from State, e Exit) Exit {
	if from == Failing {
		e.Code = failedStart
	}
	if waits(from) && p.fatal != 0 && e.Code == 128+uint32(killSignal) {
		e.Code = 128 + uint32(p.fatal)
	}
	return e
}

// wait returns the exit. If the exit is known, it does not wait.
func (p *process) wait(ctx context.Context) (Exit, error) {
	if _, err := p.until(ctx, State.final); err != nil {
		return Exit{}, fmt.Errorf("wait for %s: %w", p.name(), err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit, nil
}

// alive returns the process's pid, or an error if there is no running process.
func (p *process) alive() (pid int, start uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.state == Stopped || p.state == Deleting || p.state == Deleted:
		return 0, 0, fmt.Errorf("%s: process already finished: %w", p.name(), errdefs.ErrNotFound)
	case p.pid == 0:
		return 0, 0, fmt.Errorf("%s: process was not started: %w", p.name(), errdefs.ErrFailedPrecondition)
	}
	return p.pid, p.start, nil
}
