package disk

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// The directories below pods/, with the names that rkt gave them. The directory and the lock
// of a pod show its state: docs/layout.md.
const (
	dirEmbryo  = "embryo"
	dirPrepare = "prepare"
	dirRun     = "run"
	dirExited  = "exited-garbage"
)

// Key says whose a pod is. Pods of one data directory may belong to several
// containerd daemons.
type Key struct {
	Daemon    string // containerd's address
	Namespace string
	Sandbox   string // the sandbox's id, or the id of a container by itself
}

// Store is the data directory.
type Store struct {
	dir string

	// Children, if set, is told of the processes that poststop hooks start, so
	// that it does not reap them as unknown. Set it before the Store is used.
	Children *proc.Children

	// Fault is called after every step that changes the disk. Tests stop there.
	Fault func(step string)
}

// OpenStore opens the data directory and makes what is missing of it.
func OpenStore(dataDir string) (*Store, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dataDir, err)
	}
	s := &Store{dir: dir, Fault: func(string) {}}
	if err := s.makeDirs(); err != nil {
		return nil, fmt.Errorf("data directory (RKT_DATA_DIR sets it): %w", err)
	}
	return s, nil
}

// at returns the store in another data directory, which exists if there is a pod in it.
func (s *Store) at(dataDir string) *Store {
	return &Store{dir: dataDir, Children: s.Children, Fault: s.Fault}
}

// makeDirs makes the directories that every pod needs. A tree is mounted in each pod, so
// pods/ keeps the host's users out as trees/ does.
func (s *Store) makeDirs() error {
	if err := datadir.Make(s.dir, datadir.Mode); err != nil {
		return err
	}
	if err := datadir.Make(filepath.Join(s.dir, "pods"), 0o750); err != nil {
		return err
	}
	for _, state := range []string{dirEmbryo, dirPrepare, dirRun, dirExited} {
		if err := os.MkdirAll(s.path(state, ""), 0o750); err != nil {
			return err
		}
	}
	return nil
}

// Path returns the data directory.
func (s *Store) Path() string { return s.dir }

func (s *Store) path(state, uuid string) string {
	return filepath.Join(s.dir, "pods", state, uuid)
}
