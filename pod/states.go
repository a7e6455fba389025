package pod

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// State is the state of an app or of an exec. Both move by the one table below;
// an exec is never paused by itself, it shows its app's pause.
//
//	           start           exited
//	Creating ──► Created ──► Running ──► Stopped ──► Deleted
//	   │            │  └──────────────────►┘ ▲
//	   └► Deleted   └► Deleted               │
//	                       Running ⇄ Paused ─┘
type State int

// The states. Creating is not visible to clients: the app's id is taken, its
// process does not exist yet.
const (
	Creating State = iota
	Created
	Starting // the start call is under way; clients see Created
	Failing  // app/start has failed, and what is left of the app is being killed; clients see Created
	Running
	Pausing
	Paused
	Stopped
	Deleted
)

var stateNames = [...]string{"creating", "created", "starting", "failing", "running", "pausing", "paused", "stopped", "deleted"}

func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", int(s))
	}
	return stateNames[s]
}

// step is something that happens to an app or exec.
type step int

const (
	stepCreated step = iota // its process exists (an exec: it is registered)
	stepStart               // the client asked to start it
	stepStarted             // it runs the user's program
	stepUnstart             // an exec's start failed: it may be deleted, or started again
	stepFail                // app/start failed: the app is being killed
	stepExited              // its first process has ended
	stepDelete              // the client has seen it go
	stepPausing             // the client asked to pause it
	stepPaused              // every process of it is frozen
	stepUnpause             // it could not be paused, and runs on
	stepResumed             // it runs again
)

// transitions is the only place that says what may follow what. A step that is
// not listed for a state is refused with errdefs.ErrFailedPrecondition.
var transitions = map[State]map[step]State{
	Creating: {stepCreated: Created, stepDelete: Deleted},
	Created:  {stepStart: Starting, stepExited: Stopped, stepDelete: Deleted},
	Starting: {stepStarted: Running, stepUnstart: Created, stepFail: Failing, stepExited: Stopped},
	Failing:  {stepExited: Stopped},
	Running:  {stepExited: Stopped, stepPausing: Pausing},
	Pausing:  {stepPaused: Paused, stepUnpause: Running, stepExited: Stopped},
	Paused:   {stepResumed: Running, stepExited: Stopped},
	Stopped:  {stepDelete: Deleted},
}

// why says in a client's words what a step is refused for.
var why = map[step]string{
	stepStart:   "start",
	stepDelete:  "delete",
	stepPausing: "pause",
	stepPaused:  "pause",
	stepResumed: "resume",
	stepExited:  "record the exit of",
}

// next returns the state after a step.
func (s State) next(t step, what string) (State, error) {
	if n, ok := transitions[s][t]; ok {
		return n, nil
	}
	verb := why[t]
	if verb == "" {
		verb = "move"
	}
	return s, fmt.Errorf("cannot %s a %s process: %s: %w", verb, s, what, errdefs.ErrFailedPrecondition)
}
