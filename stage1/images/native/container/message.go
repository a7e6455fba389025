package container

import "encoding/json"

// Message is one packet between Init and the supervisor.
type Message struct {
	Word Word   `json:"type"`
	Text string `json:"text,omitempty"` // of WordError
	Code int    `json:"code,omitempty"` // of WordError: an exit code of the ABI; of WordListener: a descriptor
}

// Word says what a Message is about.
type Word string

// Words of Init.
const (
	// WordSpawned is the first word of an Init that a spawner has made. The supervisor takes
	// over the process that the kernel names as its sender, and answers WordAdopted.
	WordSpawned Word = "spawned"
	// WordLimits asks for the limits that this process has no right to raise. The answer
	// is WordGo.
	WordLimits Word = "limits"
	// WordNetDevices asks for the network devices of the spec: the network namespace exists.
	// The answer is WordGo.
	WordNetDevices Word = "netDevices"
	// WordHooks asks for the hooks of the runtime namespace: the namespaces exist. The
	// answer is WordGo.
	WordHooks Word = "hooks"
	// WordConsole comes with the master of the terminal.
	WordConsole Word = "console"
	// WordReady says that everything is done but what follows WordStart.
	WordReady Word = "ready"
	// WordListener says that the seccomp filter is in force; its code is the descriptor of the
	// filter's listener. The answer is WordGo.
	WordListener Word = "listener"
	// WordExec says that the program is executed next: the end of the socket without
	// another word means that it was.
	WordExec Word = "exec"
	// WordError says why this process ends.
	WordError Word = "error"
)

// Words of the supervisor.
const (
	WordAdopted Word = "adopted"
	WordGo      Word = "go"
	// WordStart answers WordReady when the program is to be executed.
	WordStart Word = "start"
)

// Encode returns the packet. What is sent on the way to the exec is written by
// hand, for the reason that codec has.
func (m Message) Encode() []byte {
	if m == (Message{Word: m.Word}) {
		return []byte(`{"type":"` + m.Word + `"}`)
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return b
}
