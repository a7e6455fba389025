package pod

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// State is the state of an app or of an exec. Both use the table below. An exec is not
// paused by itself; it shows the pause of its app.
//
//	           start                   exited            delete
//	Creating ──► Created ──► Starting ──► Running ──► Stopped ──► Deleting ──► Deleted
//	                │  ▲                  ⇅     │        ▲            ▲
//	         delete │  │undelete       Paused   │kill    │            │
//	                ▼  │                        ▼        │            │
//	             Discarding                  Killing ────┘            │
//	                └────────────────────exited───────────────────────┘
type State int

// The states. For some of them clients see another state, which shown returns.
const (
	// Creating: the id is taken, and the process does not exist yet. Clients do not
	// see the app at all.
	Creating State = iota
	// Created: the app's first process is blocked before its program; an exec has no
	// process.
	Created
	// Starting: the start call is in progress. The outbox holds the other events of
	// the process until it has ended.
	Starting
	// Failing: app/start has failed, and abort kills what is left of the app. No event
	// of its exit is published.
	Failing
	// Unstarted: the start of an exec has failed. Calls that wait for its exit return.
	// It is not started again: its streams are closed.
	Unstarted
	// Running: the user's program runs.
	Running
	// Pausing: no further exec is admitted. The app is frozen when the execs that are
	// being started have started.
	Pausing
	// Paused: every process of the app is frozen.
	Paused
	// Killing: a client has sent SIGKILL to a running app. It cannot be paused any
	// more, because with version 1 of cgroups a frozen process does not end.
	Killing
	// Stopped: the process has ended, and its exit was published. It may have ended before
	// it ran the user's program.
	Stopped
	// Discarding: an app or exec that was not started is being deleted. The blocked
	// process of an app is killed first.
	Discarding
	// Deleting: an app or exec that has ended is being deleted.
	Deleting
	// Deleted: clients do not see the app or exec any more.
	Deleted
)

var stateNames = [...]string{
	"creating", "created", "starting", "failing", "unstarted", "running", "pausing", "paused", "killing", "stopped", "discarding", "deleting", "deleted",
}

func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", int(s))
	}
	return stateNames[s]
}

// shown returns the state that clients see instead of s.
func (s State) shown() State {
	switch s {
	case Starting, Failing, Unstarted, Discarding:
		return Created
	case Killing:
		return Running
	case Deleting:
		return Stopped
	}
	return s
}

// deletes reports whether a Delete is in progress or has succeeded.
func (s State) deletes() bool { return s == Discarding || s == Deleting || s == Deleted }

// final reports whether an exit is known, or there will be none.
func (s State) final() bool { return s == Unstarted || s == Stopped || s == Deleting || s == Deleted }

// step is a step of an app or exec from one state to another.
type step string

const (
	stepCreated  step = "created"  // its process exists (an exec: it is registered)
	stepStart    step = "start"    // the client asked to start it
	stepStarted  step = "started"  // it runs the user's program
	stepUnstart  step = "unstart"  // an exec's start failed: it may be deleted
	stepFail     step = "fail"     // app/start failed: the app is being killed
	stepExited   step = "exited"   // its first process has ended
	stepPausing  step = "pausing"  // the client asked to pause it
	stepPaused   step = "paused"   // every process of it is frozen
	stepUnpause  step = "unpause"  // it could not be paused, and continues to run
	stepResumed  step = "resumed"  // it runs again
	stepKill     step = "kill"     // the client sends it SIGKILL
	stepUnkill   step = "unkill"   // SIGKILL could not be sent
	stepDelete   step = "delete"   // the client asked to delete it
	stepUndelete step = "undelete" // its process could not be killed
	stepDeleted  step = "deleted"  // nothing of it is left
)

// transitions is the only table of legal steps. A step that is not listed for a state
// is refused with errdefs.ErrFailedPrecondition. docs/lifecycle.md has the same table.
var transitions = map[State]map[step]State{
	Creating:   {stepCreated: Created, stepDeleted: Deleted},
	Created:    {stepStart: Starting, stepExited: Stopped, stepDelete: Discarding},
	Starting:   {stepStarted: Running, stepUnstart: Unstarted, stepFail: Failing, stepExited: Stopped},
	Failing:    {stepExited: Stopped},
	Unstarted:  {stepExited: Stopped, stepDelete: Discarding},
	Running:    {stepExited: Stopped, stepPausing: Pausing, stepKill: Killing},
	Pausing:    {stepPaused: Paused, stepUnpause: Running, stepExited: Stopped, stepKill: Killing},
	Paused:     {stepResumed: Running, stepExited: Stopped},
	Killing:    {stepExited: Stopped, stepUnkill: Running},
	Stopped:    {stepDelete: Deleting},
	Discarding: {stepExited: Deleting, stepUndelete: Created, stepDeleted: Deleted},
	Deleting:   {stepDeleted: Deleted},
}

// why has the words of clients for steps, for the errors of refused steps.
var why = map[step]string{
	stepStart:   "start",
	stepDelete:  "delete",
	stepPausing: "pause",
	stepPaused:  "pause",
	stepResumed: "resume",
	stepExited:  "record the exit of",
}

// next returns the state after a step. An error names the state as clients see it. But
// several states look like Created to clients, which would not explain why a start call
// is refused, so for these the error names the state itself.
func (s State) next(t step, what string) (State, error) {
	if n, ok := transitions[s][t]; ok {
		return n, nil
	}
	if s == Killing && (t == stepPausing || t == stepPaused) {
		return s, fmt.Errorf("cannot pause container %s: it is being killed: %w", what, errdefs.ErrFailedPrecondition)
	}
	if s == Unstarted && t == stepStart {
		return s, fmt.Errorf("cannot start %s again: its start has failed and its streams are closed: delete it and add another: %w", what, errdefs.ErrFailedPrecondition)
	}
	verb := why[t]
	if verb == "" {
		verb = "move"
	}
	named := s
	if seen := s.shown(); seen != Created {
		named = seen
	}
	return s, fmt.Errorf("cannot %s a %s process: %s: %w", verb, named, what, errdefs.ErrFailedPrecondition)
}
