package supervisor

// state is the state of an app. doc.go has the picture.
type state int

const (
	adding   state = iota // its process is being made
	added                 // its process waits to be started
	starting              // it was told to execute its program
	running               // it executes its program
	ended                 // its end is recorded
	removed               // it is forgotten
)

func (s state) String() string {
	return [...]string{"half made", "created", "starting", "running", "stopped", "removed"}[s]
}

// step is an event of an app.
type step int

const (
	stepReady  step = iota // the process is blocked before its exec
	stepStart              // app/start
	stepExec               // the exec has succeeded
	stepExit               // the end is recorded
	stepRemove             // app/rm
	stepFail               // its making has failed
)

func (s step) String() string {
	return [...]string{"finish", "start", "execute", "end", "remove", "give up"}[s]
}

// transitions is the table. No step leads to adding, which therefore stands for an illegal
// one.
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

// illegal is the error of a step that the state does not allow.
func (s state) illegal(t step, app string) error {
	return precondition("app %s: cannot %s a %s process", app, t, s)
}

func (s state) alive() bool { return s < ended }
