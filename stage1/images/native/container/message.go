package container

import "github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"

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
	// WordSpawned is the first word of an Init that a spawner has made. The kernel names
	// the sender of the message to the supervisor, which takes over that process and
	// answers WordAdopted.
	WordSpawned Word = "spawned"
	// WordLimits asks the supervisor to raise the limits that this process has no right to
	// raise. The answer is WordGo.
	WordLimits Word = "limits"
	// WordNetDevices asks the supervisor to move the network devices of the spec. The
	// network namespace exists by then. The answer is WordGo.
	WordNetDevices Word = "netDevices"
	// WordHooks asks the supervisor to run the hooks of the runtime namespace. All
	// namespaces exist by then. The answer is WordGo.
	WordHooks Word = "hooks"
	// WordConsole comes with the master of the terminal.
	WordConsole Word = "console"
	// WordReady says that all steps before WordStart are done.
	WordReady Word = "ready"
	// WordListener says that the seccomp filter is in force. Its code is the descriptor of
	// the filter's listener. The answer is WordGo.
	WordListener Word = "listener"
	// WordExec says that the program is executed next. If the socket is closed without
	// another word, the exec has succeeded.
	WordExec Word = "exec"
	// WordError gives the reason for which this process ends.
	WordError Word = "error"
)

// Words of the supervisor.
const (
	WordAdopted Word = "adopted"
	WordGo      Word = "go"
	// WordStart answers WordReady when the program is to be executed.
	WordStart Word = "start"
)

// Encode returns the packet. It does not use encoding/json for the packets of a successful
// start, for the same reason as codec.
func (m Message) Encode() []byte {
	if m == (Message{Word: m.Word}) {
		return []byte(`{"type":"` + m.Word + `"}`)
	}
	b, err := plainjson.Encode(m)
	if err != nil {
		panic(err) // strings and a number can always be marshalled
	}
	return b
}
