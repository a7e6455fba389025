package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Descriptors that the supervisor hands over.
const (
	syncFD   = 3 // its socket
	configFD = 4 // Prepared.Config
)

// message is one packet between Init and the supervisor.
type message struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	Code int    `json:"code,omitempty"`
}

// encode returns the packet. What is sent on the way to the exec is written by
// hand, for the reason that codec has.
func (m message) encode() []byte {
	if m == (message{Type: m.Type}) {
		return []byte(`{"type":"` + m.Type + `"}`)
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return b
}

// is tells whether a packet says what m does.
func (m message) is(packet []byte) bool {
	if string(packet) == string(m.encode()) {
		return true
	}
	var other message
	return json.Unmarshal(packet, &other) == nil && other == m
}

// send sends a packet, which may have descriptors.
func send(m message, fds ...int) error {
	if err := proc.Send(syncFD, m.encode(), fds...); err != nil {
		return fmt.Errorf("send %q to the supervisor: %w", m.Type, err)
	}
	return nil
}

// await blocks until the supervisor sends a packet of this type. Without a
// supervisor there is nothing left to do, and nobody to tell.
func await(kind string) {
	buf := make([]byte, 1024)
	for {
		n, err := unix.Read(syncFD, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			os.Exit(1)
		}
		if (message{Type: kind}).is(buf[:n]) {
			return
		}
		os.Exit(1)
	}
}

// fail reports an error and ends the process.
func fail(err error, status int) {
	_ = send(message{Type: "error", Text: err.Error(), Code: codeOf(err)})
	os.Exit(status)
}
