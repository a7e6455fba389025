package pod

import (
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

// StartFailure is the error of a start whose pod had a directory, with those facts of the
// directory that are gone when the caller has the error. Its text and kind are those of Err.
type StartFailure struct {
	Err    error
	Pod    string // UUID
	Stage1 disk.Stage1Record
	Calls  []journal.Entry // of the pod's journal
}

func (f *StartFailure) Error() string { return f.Err.Error() }
func (f *StartFailure) Unwrap() error { return f.Err }

// failure adds the facts of the session's directory to an error. It is called before the
// undo of the start, which removes the directory.
func (s *session) failure(app disk.AppName, err error) error {
	if s == nil || s.dir == nil {
		return err
	}
	return &StartFailure{Err: err, Pod: s.dir.UUID(), Stage1: s.dir.Stage1(), Calls: s.dir.Calls(string(app))}
}
