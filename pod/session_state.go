package pod

// sessionState is the state of a session, the one time that a pod's stage1 runs. A
// pod without a session has none.
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
	// sessionStarting: `run` is at work.
	sessionStarting
	// sessionUp: the stage1 runs, and its notices are read.
	sessionUp
	// sessionDown: the stage1 has ended by itself, and so have its apps.
	sessionDown
	// sessionFailed: there is no directory, or the stage1 did not start. The apps that
	// came for the session find that out, and the last one that leaves ends it.
	sessionFailed
	// sessionCanceling: the last app has gone before the stage1 was up.
	sessionCanceling
	// sessionStopping: the stage1 is being stopped, since the last app has gone, or the
	// sandbox. A new app waits for the next session, here and in the states below.
	sessionStopping
	// sessionEnded: the stage1 has ended, and its `stop` has not returned. Of a stage1
	// that has ended by itself it is called, too.
	sessionEnded
	// sessionRemoving: there is no stage1 any more, and the directory is being removed.
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

// ends reports whether a caller has ended the session.
func (s sessionState) ends() bool { return s >= sessionCanceling }

// stage1Ended reports whether a stage1 that was up has ended.
func (s sessionState) stage1Ended() bool { return s == sessionDown || s >= sessionEnded }

// without reports whether there is no stage1 to stop: it did not start, or `stop` has
// returned.
func (s sessionState) without() bool { return s == sessionFailed || s >= sessionRemoving }

// sessionStep is something that happens to a session.
type sessionStep string

const (
	sessionMake        sessionStep = "made"    // the directory was made
	sessionStart       sessionStep = "start"   // `run` is called
	sessionRuns        sessionStep = "up"      // the stage1 is ready
	sessionFail        sessionStep = "fail"    // there will be no stage1
	sessionStage1Ended sessionStep = "down"    // the notice pipe has ended, and the apps have
	sessionEnd         sessionStep = "end"     // the last app leaves, or the pod is closed
	sessionStop        sessionStep = "stopped" // `stop` has returned
	sessionOver        sessionStep = "gone"    // nothing is left
)

// sessionTransitions says what may follow what. docs/lifecycle.md has the same table.
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
