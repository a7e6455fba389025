package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/pod/removal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// The directories below pods/, with the names that rkt gave them. The state of a pod
// follows from its directory and its lock: docs/layout.md.
const (
	dirEmbryo  = "embryo"
	dirPrepare = "prepare"
	dirRun     = removal.Run
	dirExited  = removal.Exited
)

// Key names the owner of a pod, because pods of several containerd daemons may share a data
// directory.
type Key struct {
	Daemon    string // containerd's address; empty for a local pod, which rktctl has made
	Namespace string
	Sandbox   string // the sandbox's id, or the id of a container that is a pod of its own
}

// Store is the data directory.
type Store struct {
	dir string

	// Children, if set, starts the processes of poststop hooks, so that it does not reap
	// them as unknown. Set it before the Store is used.
	Children *proc.Children

	// Hooks are the poststop hooks that this process runs. Before the process ends, it calls Hooks.Wait.
	Hooks *Hooks

	// Fault is called after every step that changes the disk. Tests stop or kill the
	// process in it.
	Fault func(step string)
}

// OpenStore opens the data directory and makes missing directories in it.
func OpenStore(dataDir string) (*Store, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dataDir, err)
	}
	s := &Store{dir: dir, Hooks: &Hooks{}, Fault: func(string) {}}
	if err := s.makeDirs(); err != nil {
		return nil, fmt.Errorf("data directory (RKT_DATA_DIR sets it): %w", err)
	}
	return s, nil
}

// at returns a store for another data directory. It makes no directories, because they
// exist if there is a pod.
func (s *Store) at(dataDir string) *Store {
	return &Store{dir: dataDir, Children: s.Children, Hooks: s.Hooks, Fault: s.Fault}
}

// makeDirs makes the directories that every pod needs. A tree is mounted in each pod, so
// pods/ keeps the host's users out as trees/ does.
func (s *Store) makeDirs() error {
	if err := datadir.Make(s.dir, datadir.Mode); err != nil {
		return err
	}
	if err := datadir.Make(filepath.Join(s.dir, removal.Pods), 0o750); err != nil {
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
	return filepath.Join(s.dir, removal.Pods, state, uuid)
}

// debugDir is the directory of the data directory that has the bundles of debug apps, by pod.
// containerd has no bundle for an app that it does not know. It is not in the pod's directory,
// because the root of a user namespace cannot pass through `pods` to its root file system.
const debugDir = "debug"

// debugPath returns the directory of a pod's debug apps.
func (s *Store) debugPath(uuid string) string { return filepath.Join(s.dir, debugDir, uuid) }

// readNames returns the names in a directory, in no order; none if it does not exist.
func readNames(dir string) ([]string, error) {
	f, err := proc.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}
