// Package loot defines the lines in which an attacking container reports its loot. The
// programs in the containers write a line for each piece, and the tests read the lines.
package loot

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Loot is something that a container should not have got.
type Loot struct {
	// What is one of the kinds below.
	What string `json:"loot"`
	// How says by which path or process the attacker got it.
	How string `json:"how"`
	// Secret is the text that the attacker read. The tests compare it with the host's secret.
	Secret string `json:"secret,omitempty"`
}

// Kinds of loot that a container itself can notice. The tests find changed files of the
// host, and remaining processes.
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

// State has the rights of a process, as it reports them. The tests compare them with its spec.
type State struct {
	Status map[string]string `json:"state"` // of /proc/self/status
	OOM    string            `json:"oom"`
	// FirstOOM is the OOM score of the first process of the PID namespace.
	FirstOOM string `json:"firstOOM"`
	UID      int    `json:"uid"`
	GID      int    `json:"gid"`
}

// Hole is the verdict on one way out of a container. The tests compare the verdicts in a container of
// ours with those in a container of runc's.
type Hole struct {
	// Name says what was tried, and in which namespaces.
	Name string `json:"hole"`
	// Verdict is Open, or the error.
	Verdict string `json:"verdict"`
}

// Open is the verdict on a way that is open.
const Open = "open"

// Say writes a line of JSON.
func Say(w io.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above can be encoded
	}
	fmt.Fprintf(w, "%s\n", b)
}

// Holes reads the verdicts in the output of attackers. A way that is open once is open.
func Holes(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if h := (Hole{}); json.Unmarshal([]byte(line), &h) == nil && h.Name != "" && all[h.Name] != Open {
			all[h.Name] = h.Verdict
		}
	}
	return all
}

// Parse reads the output of attackers, and ignores other lines.
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
