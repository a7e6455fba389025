package disk

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// CollectedExit is how a collected container ended.
type CollectedExit struct {
	PID   int
	Code  uint32
	At    time.Time
	Found bool // the bundle belonged to a container of a shim
	// Left is set if Collect could not finish the work on the container or its pod.
	Left bool
	// Rest is the argument of Finish. It is empty if Collect has found no pod.
	Rest string
}

// collected returns the exit that an unfinished earlier call has recorded.
func (e *exitRecord) collected() CollectedExit {
	if e == nil {
		return CollectedExit{}
	}
	return CollectedExit{PID: e.PID, Code: e.Code, At: e.At, Found: true}
}

// record is the inverse of collected.
func (e CollectedExit) record() *exitRecord {
	if !e.Found {
		return nil
	}
	return &exitRecord{PID: e.PID, Code: e.Code, At: e.At}
}

// recordExit records an exit in a bundle, and returns the one that is recorded. It takes the pod's lock, because another `delete` of the
// same container may run, and remove what the exit was read from.
func recordExit(pod *os.Root, b backlink, exit CollectedExit) (CollectedExit, error) {
	err := locked(pod, func() error {
		recorded, err := b.recordExit(exit.record())
		if err == nil {
			exit = recorded.collected()
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return exit, err
}
