package supervisor

import "github.com/rkt/containerd-shim-rkt-v1/abi/serve"

// state is the state of an app. doc.go has the diagram.
type state int

const (
	adding   state = iota // its process is being made
	added                 // its process waits to be started
	starting              // it was told to execute its program
	running               // it executes its program
	ended                 // its exit is recorded
	removed               // app/rm has removed it, or it could not be made
)

func (s state) String() string {
	return [...]string{"half made", "created", "starting", "running", "stopped", "removed"}[s]
}

// step is a step of an app from one state to another.
type step int

const (
	stepReady  step = iota // the process is blocked before its exec
	stepStart              // app/start
	stepExec               // the exec has succeeded
	stepExit               // the exit is recorded
	stepRemove             // app/rm
	stepFail               // its making has failed
)

func (s step) String() string {
	return [...]string{"finish", "start", "execute", "end", "remove", "give up"}[s]
}

// transitions is the table of the states after each step. No step leads to adding, so its
// value, 0, means that a step is illegal.
var transitions = [removed + 1][stepFail + 1]state{
	adding:   {stepReady: added, stepFail: removed},
	added:    {stepStart: starting, stepExit: ended},
	starting: {stepExec: running, stepExit: ended},
	running:  {stepExit: ended},
	ended:    {stepRemove: removed},
}

// next returns the state after a step, or the same state and false if the step is illegal.
func (s state) next(t step) (state, bool) {
	if to := transitions[s][t]; to != adding {
		return to, true
	}
	return s, false
}

// illegal returns the error for a step that is illegal in a state.
func (s state) illegal(t step, app string) error {
	return serve.Precondition("app %s: cannot %s a %s process", app, t, s)
}

func (s state) alive() bool { return s < ended }
