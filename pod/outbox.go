package pod

import (
	"fmt"
	"slices"
	"sync"

	"github.com/containerd/errdefs"
)

// outbox decides when the events of an app and of its execs are published. Callers
// push every event as soon as they know the fact, and facts may arrive in any order.
// The outbox publishes an event at once, holds it until another event or the end of
// a start allows it, or drops it:
//
//   - Nothing of a process is published before its create or exec-added event, and
//     nothing of an exec before the create event of the app.
//   - While the start of a process is under way, only its start event is published.
//   - An exec that was not started has no exit event.
//   - The exit of the app follows the exits of all execs that were started or whose
//     start is under way, and after it nothing is published but the deletion.
//   - An exit follows every OOM event that was handed in before it.
type outbox struct {
	// mu is held while an event is published, which never blocks. So Publish is
	// called in the order that this type decides.
	mu   sync.Mutex
	app  *lane
	live int // execs that were started, or whose start is under way
	held []heldEvent
}

type heldEvent struct {
	lane  *lane
	event Event
}

// lane is the part of an outbox that belongs to one process.
type lane struct {
	box *outbox
	// publish moves the process to the state that belongs to the event, and
	// publishes the event. If the state does not allow the event, publish returns an
	// error, and the event is dropped.
	publish func(Event) error

	phase phase
}

// phase says which events of a process were published.
type phase int

const (
	phaseNew      phase = iota // its create or exec-added event was not published
	phaseIdle                  // not started
	phaseStarting              // it is being started: its events wait for the end of that
	phaseRunning               // the start event was published
	phaseOver                  // the exit was published, or the process was given up
)

// errOver is the error for an event that comes too late.
var errOver = fmt.Errorf("it has ended: %w", errdefs.ErrFailedPrecondition)

// lane adds the lane of a further process. The first lane is the app's.
func (b *outbox) lane(publish func(Event) error) *lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &lane{box: b, publish: publish}
	if b.app == nil {
		b.app = l
	}
	return l
}

// push takes an event. If the event is dropped, push returns the reason. If it is
// held, push returns nil.
func (l *lane) push(e Event) error {
	b := l.box
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.pushLocked(l, e)
	b.flushLocked()
	return err
}

// begin calls the function move, which begins the start of the process. If that
// succeeds, the events of the process are held until its start event is pushed, or
// unstart or drop is called.
func (l *lane) begin(move func() error) error {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	if err := move(); err != nil {
		return err
	}
	l.moveLocked(phaseStarting)
	return nil
}

// unstart ends a start that has failed. There will be no start event.
func (l *lane) unstart() {
	l.box.mu.Lock()
	defer l.box.mu.Unlock()
	if l.phase == phaseStarting {
		l.moveLocked(phaseIdle)
		l.box.flushLocked()
	}
}

// drop discards all events of a process, including later ones, if its start was not
// published. It reports whether it has done so.
func (l *lane) drop() bool {
	b := l.box
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.phase == phaseRunning {
		return false
	}
	l.moveLocked(phaseOver)
	b.flushLocked()
	return true
}

// moveLocked changes the phase, and counts the execs that the app's exit waits for.
func (l *lane) moveLocked(to phase) {
	waits := func(p phase) bool { return l != l.box.app && (p == phaseStarting || p == phaseRunning) }
	if waits(l.phase) {
		l.box.live--
	}
	if waits(to) {
		l.box.live++
	}
	l.phase = to
}

// verdict is the decision about an event.
type verdict int

const (
	verdictPublish verdict = iota
	verdictHold
	verdictDrop
)

// judgeLocked decides about an event. before has the events that were held before
// it.
func (b *outbox) judgeLocked(l *lane, e Event, before []heldEvent) verdict {
	announces := e.Kind == EventCreated || e.Kind == EventExecAdded
	starts := e.Kind == EventStarted || e.Kind == EventExecStarted
	switch {
	case e.Kind == EventDeleted:
		return verdictPublish
	case b.app.phase == phaseOver || l.phase == phaseOver:
		return verdictDrop
	case !announces && l.phase == phaseNew || l != b.app && b.app.phase == phaseNew:
		return verdictHold
	case l.phase == phaseStarting && !starts:
		return verdictHold
	case e.Kind != EventExited:
		return verdictPublish
	case slices.ContainsFunc(before, func(h heldEvent) bool { return h.event.Kind == EventOOM }):
		return verdictHold
	case l != b.app && l.phase == phaseIdle:
		return verdictDrop
	case l == b.app && b.live > 0:
		return verdictHold
	}
	return verdictPublish
}

func (b *outbox) pushLocked(l *lane, e Event) error {
	switch b.judgeLocked(l, e, b.held) {
	case verdictHold:
		b.held = append(b.held, heldEvent{l, e})
		return nil
	case verdictDrop:
		return errOver
	}
	return b.publishLocked(l, e)
}

func (b *outbox) publishLocked(l *lane, e Event) error {
	if err := l.publish(e); err != nil {
		return err
	}
	switch e.Kind {
	case EventCreated, EventExecAdded:
		l.moveLocked(phaseIdle)
	case EventStarted, EventExecStarted:
		l.moveLocked(phaseRunning)
	case EventExited:
		l.moveLocked(phaseOver)
	}
	return nil
}

// flushLocked publishes or drops the events that need not be held any more, oldest
// first.
func (b *outbox) flushLocked() {
	for i := 0; i < len(b.held); {
		h := b.held[i]
		v := b.judgeLocked(h.lane, h.event, b.held[:i])
		if v == verdictHold {
			i++
			continue
		}
		b.held = slices.Delete(b.held, i, i+1)
		if v == verdictPublish {
			_ = b.publishLocked(h.lane, h.event)
		}
		i = 0 // this event may allow an older one
	}
}
