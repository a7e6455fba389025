package container

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Descriptors that the supervisor passes to Init.
const (
	syncFD   = 3 // the socket of the supervisor
	configFD = 4 // Prepared.Config
)

// send sends a packet, which may have descriptors.
func send(m Message, fds ...int) error {
	if err := proc.Send(syncFD, m.Encode(), fds...); err != nil {
		return fmt.Errorf("send %q to the supervisor: %w", m.Word, err)
	}
	return nil
}

// await waits until the supervisor sends a word. If the supervisor has ended, or sends any
// other packet, await ends this process.
func await(w Word) {
	buf := make([]byte, 1024)
	for {
		n, err := unix.Read(syncFD, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || string(buf[:n]) != string(Message{Word: w}.Encode()) {
			os.Exit(1)
		}
		return
	}
}

// fail reports an error and ends the process.
func fail(err error, status int) {
	_ = send(Message{Word: WordError, Text: err.Error(), Code: serve.CodeOf(err)})
	os.Exit(status)
}
