package pod

// SandboxState is the state of a sandbox.
//
//	created ──start──► starting ──ready──► ready ─────┐
//	   │                  │ │stop            │ │stop  │
//	   │                  │ ▼               │ ▼      │
//	   │                  │ canceling ─ready─┼► stopping
//	   │stopped           │stopped  │stopped  │stopped │stopped
//	   └──────────────────┴──► stopped ◄──────┴────────┘
type SandboxState int

const (
	// SandboxCreated: the pod directory exists, and the pod has no process.
	SandboxCreated SandboxState = iota
	// SandboxStarting: the stage1 is being started, and with it the holder.
	SandboxStarting
	// SandboxCanceling: StopSandbox was called during the start. SandboxStatus says
	// starting.
	SandboxCanceling
	// SandboxReady: the holder has the pod's namespaces, and apps may come.
	SandboxReady
	// SandboxStopping: StopSandbox was called. SandboxStatus says ready.
	SandboxStopping
	// SandboxStopped: the holder has ended, or there was none. The exit is final.
	SandboxStopped
)

var sandboxStateNames = [...]string{"created", "starting", "canceling", "ready", "stopping", "stopped"}

func (s SandboxState) String() string { return sandboxStateNames[s] }

// shown returns the state that clients see instead of s.
func (s SandboxState) shown() SandboxState {
	switch s {
	case SandboxCanceling:
		return SandboxStarting
	case SandboxStopping:
		return SandboxReady
	}
	return s
}

// stopRequested reports whether a client has asked for the end and the sandbox has not
// ended yet.
func (s SandboxState) stopRequested() bool { return s == SandboxCanceling || s == SandboxStopping }

// stopped reports whether the exit is known.
func (s SandboxState) stopped() bool { return s == SandboxStopped }

// sandboxStep is a step of a sandbox from one state to another.
type sandboxStep string

const (
	stepSandboxStart   sandboxStep = "start"   // StartSandbox
	stepSandboxReady   sandboxStep = "ready"   // the holder is in its namespaces
	stepSandboxStop    sandboxStep = "stop"    // StopSandbox
	stepSandboxStopped sandboxStep = "stopped" // the holder has ended, or will never exist
)

// sandboxTransitions has the legal steps of each state. docs/lifecycle.md has the same
// table.
var sandboxTransitions = map[SandboxState]map[sandboxStep]SandboxState{
	SandboxCreated:   {stepSandboxStart: SandboxStarting, stepSandboxStopped: SandboxStopped},
	SandboxStarting:  {stepSandboxReady: SandboxReady, stepSandboxStop: SandboxCanceling, stepSandboxStopped: SandboxStopped},
	SandboxCanceling: {stepSandboxReady: SandboxStopping, stepSandboxStopped: SandboxStopped},
	SandboxReady:     {stepSandboxStop: SandboxStopping, stepSandboxStopped: SandboxStopped},
	SandboxStopping:  {stepSandboxStopped: SandboxStopped},
}
