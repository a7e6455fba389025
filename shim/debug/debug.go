// Package debug has the messages between rktctl and the shim of a pod when an operator debugs
// an app. They are exchanged on a stream of a ttrpc service of its own, which containerd does
// not use, on the socket of the shim:
//
//	rktctl                         shim
//	Request  ────────────────────►       makes a directory in the pod
//	         ◄────────────────────  Prepared
//	config.json, root file system
//	Start    ────────────────────►       makes the app and starts it
//	         ◄────────────────────  Started
//	Control* ────────────────────►
//	         ◄────────────────────  Ended, after the app was removed
//
// The shim kills and removes the app when the stream ends. Every message is a JSON object in a
// protobuf Any. The package knows neither pods nor ttrpc.
package debug

import "time"

// Names of the service, its stream, and the type of the messages' Any.
const (
	Service = "rkt.debug.v1.Debug"
	Stream  = "Debug"
	Type    = "rkt.debug.v1.Message"
)

// Message is one message. One field is set.
type Message struct {
	Request  *Request  `json:"request,omitempty"`
	Prepared *Prepared `json:"prepared,omitempty"`
	Start    *Start    `json:"start,omitempty"`
	Started  *Started  `json:"started,omitempty"`
	Control  *Control  `json:"control,omitempty"`
	Ended    *Ended    `json:"ended,omitempty"`
}

// Request asks for a debug app. All fields except App are for the journal.
type Request struct {
	App    string `json:"app"` // containerd's id of the target
	UID    uint32 `json:"uid"` // of the user's login session
	Login  string `json:"login,omitempty"`
	PID    int    `json:"pid"`
	Image  string `json:"image"` // reference
	Digest string `json:"digest"`
}

// Prepared says where the debug app's files go, and what its spec has to have.
type Prepared struct {
	ID string `json:"id"`
	// Dir is the bundle: config.json is to be written there, and the image's files.
	Dir         string      `json:"dir"`
	Namespaces  []Namespace `json:"namespaces"` // to join
	CgroupsPath string      `json:"cgroupsPath"`
}

// Namespace is an entry of linux.namespaces of an OCI spec.
type Namespace struct {
	Type string `json:"type"`
	Path string `json:"path"`
}

// Start starts the debug app whose files are there. The streams are paths of fifos, or empty.
type Start struct {
	Mounts   []Mount `json:"mounts"` // of the root file system
	Stdin    string  `json:"stdin,omitempty"`
	Stdout   string  `json:"stdout,omitempty"`
	Stderr   string  `json:"stderr,omitempty"`
	Terminal bool    `json:"terminal,omitempty"`
}

// Mount is a mount of a root file system, as containerd describes it.
type Mount struct {
	Type    string   `json:"type"`
	Source  string   `json:"source"`
	Options []string `json:"options,omitempty"`
}

// Started says that the program runs.
type Started struct {
	PID int `json:"pid"`
}

// Control changes a debug app that runs. One field is set.
type Control struct {
	Signal     int   `json:"signal,omitempty"`
	Size       *Size `json:"size,omitempty"`
	CloseStdin bool  `json:"closeStdin,omitempty"`
}

// Size is the size of a terminal in characters.
type Size struct {
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// Ended is how the program ended: its exit code, or 128 plus the signal.
type Ended struct {
	Code uint32    `json:"code"`
	At   time.Time `json:"at"`
}
