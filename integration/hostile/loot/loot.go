// Package loot is what an attacking container says about what it got. The programs in
// the containers write it, a line for each piece, and the tests read it.
package loot

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Loot is something that a container should not have got.
type Loot struct {
	// What it is: one of the kinds below.
	What string `json:"loot"`
	// How the attacker got it: a path, a process.
	How string `json:"how"`
	// Secret is what it read of the host's secret, which the tests compare.
	Secret string `json:"secret,omitempty"`
}

// Kinds of loot that a container can see for itself. Files of the host that were
// changed, and processes that were left there, are found by the tests.
const (
	Read    = "a file of the host was read"
	Write   = "a file of the host, or of its /proc, can be written"
	Process = "a process of the runtime's was taken over"
	Rights  = "a process has rights that its spec does not give"
	Device  = "a device of the host was opened"
	Cgroup  = "a cgroup outside the container can be changed"
	Proc    = "what is masked or read-only is not"
	Socket  = "a socket of the host was reached"
)

// State is what a process says about itself, for the tests to compare with its spec.
type State struct {
	Status map[string]string `json:"state"` // of /proc/self/status
	OOM    string            `json:"oom"`
	// FirstOOM is that of the first process of the PID namespace.
	FirstOOM string `json:"firstOOM"`
	UID      int    `json:"uid"`
	GID      int    `json:"gid"`
}

// Say writes a line of JSON.
func Say(w io.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above can be marshalled
	}
	fmt.Fprintf(w, "%s\n", b)
}

// Parse reads what attackers wrote. Other lines are none of its business.
func Parse(text string) (all []Loot, states []State) {
	for line := range strings.Lines(text) {
		if l := (Loot{}); json.Unmarshal([]byte(line), &l) == nil && l.What != "" {
			all = append(all, l)
		}
		if s := (State{}); json.Unmarshal([]byte(line), &s) == nil && s.Status != nil {
			states = append(states, s)
		}
	}
	return all, states
}
