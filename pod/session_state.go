package pod

// sessionState is the state of a session, which is one run of a pod's stage1. A pod
// without a session has none.
//
//	making ──made──► made ──start──► starting ──up──► up ──down──► down
//	  │fail           │fail           │fail   │end    │end           │
//	  └───────────────┴──► failed ◄───┘       ▼       │              │
//	                         │          canceling ──up─┤              │
//	                         │end             │fail   ▼              │end
//	                         │                │    stopping ──down──► ended
//	                         ▼                ▼                      │stopped
//	                      removing ◄──────────┴──────────────────────┘
//	                         └──gone──► gone
type sessionState int

const (
	// sessionMaking: the pod directory is being made.
	sessionMaking sessionState = iota
	// sessionMade: the directory exists. A sandbox waits here for its start.
	sessionMade
	// sessionStarting: `run` was called and is not ready yet.
	sessionStarting
	// sessionUp: the stage1 runs, and its notices are read.
	sessionUp
	// sessionDown: the stage1 has ended by itself or with its sandbox, and so have its apps.
	sessionDown
	// sessionFailed: there is no directory, or the stage1 did not start. The apps that
	// have joined the session get the error, and the last one that leaves ends the
	// session.
	sessionFailed
	// sessionCanceling: the last app has left before the stage1 was up.
	sessionCanceling
	// sessionStopping: the stage1 is being stopped, because the last app or the sandbox
	// has gone. In this state and those below, a new app waits for the next session.
	sessionStopping
	// sessionEnded: the stage1 has ended, and `stop` has not returned yet. `stop` is
	// also called for a stage1 that has ended by itself.
	sessionEnded
	// sessionRemoving: the stage1 has ended, and the directory is being removed.
	sessionRemoving
	// sessionGone: a new session may begin.
	sessionGone
)

var sessionStateNames = [...]string{"making", "made", "starting", "up", "down", "failed", "canceling", "stopping", "ended", "removing", "gone"}

func (s sessionState) String() string { return sessionStateNames[s] }

// dirDecided reports whether the directory exists, or never will.
func (s sessionState) dirDecided() bool { return s != sessionMaking }

// startDecided reports whether the stage1 has started, or never will.
func (s sessionState) startDecided() bool {
	return s.dirDecided() && s != sessionMade && s != sessionStarting && s != sessionCanceling
}

// ends reports whether a caller has begun to end the session.
func (s sessionState) ends() bool { return s >= sessionCanceling }

// stage1Ended reports whether a stage1 that was up has ended.
func (s sessionState) stage1Ended() bool { return s == sessionDown || s >= sessionEnded }

// without reports whether there is no stage1 to stop: it did not start, or `stop` has
// returned.
func (s sessionState) without() bool { return s == sessionFailed || s >= sessionRemoving }

// sessionStep is a step of a session from one state to another.
type sessionStep string

const (
	sessionMake        sessionStep = "made"    // the directory was made
	sessionStart       sessionStep = "start"   // `run` is called
	sessionRuns        sessionStep = "up"      // the stage1 is ready
	sessionFail        sessionStep = "fail"    // there will be no stage1
	sessionStage1Ended sessionStep = "down"    // the notice pipe has ended, and so have the apps
	sessionEnd         sessionStep = "end"     // the last app leaves, or the pod is closed
	sessionStop        sessionStep = "stopped" // `stop` has returned
	sessionOver        sessionStep = "gone"    // nothing is left
)

// sessionTransitions has the legal steps of each state. docs/lifecycle.md has the same
// table.
var sessionTransitions = map[sessionState]map[sessionStep]sessionState{
	sessionMaking:    {sessionMake: sessionMade, sessionFail: sessionFailed},
	sessionMade:      {sessionStart: sessionStarting, sessionFail: sessionFailed},
	sessionStarting:  {sessionRuns: sessionUp, sessionFail: sessionFailed, sessionEnd: sessionCanceling},
	sessionUp:        {sessionStage1Ended: sessionDown, sessionEnd: sessionStopping},
	sessionDown:      {sessionEnd: sessionEnded},
	sessionFailed:    {sessionEnd: sessionRemoving},
	sessionCanceling: {sessionRuns: sessionStopping, sessionFail: sessionRemoving},
	sessionStopping:  {sessionStage1Ended: sessionEnded},
	sessionEnded:     {sessionStop: sessionRemoving},
	sessionRemoving:  {sessionOver: sessionGone},
}
