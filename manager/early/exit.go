package early

import (
	"io"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Exit is how an app's first process ended.
type Exit struct {
	PID    uint32 // 0 if unknown
	Status uint32
	At     time.Time // zero if no exit was recorded: Status means nothing then
}

// Write writes the answer of `delete`, a DeleteResponse.
func (e Exit) Write(w io.Writer) error {
	if e.At.IsZero() {
		e.Status, e.At = uint32(proc.KilledCode), time.Now()
	}
	at := appendVarint(nil, 1, uint64(e.At.Unix()))
	at = appendVarint(at, 2, uint64(e.At.Nanosecond()))
	b := appendVarint(nil, 1, uint64(e.PID))
	b = appendVarint(b, 2, uint64(e.Status))
	_, err := w.Write(appendBytes(b, 3, at))
	return err
}
