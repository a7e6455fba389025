package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// The directories below pods/: rkt's. How they and the lock tell the state of a
// pod is in docs/layout.md.
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
	// that it does not take them for orphans. Set it before the Store is used.
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

// Create makes the directory of a new pod: in the state prepare, locked, with
// its manifest and shim.json. This process is recorded as its shim. On failure
// nothing remains.
func (s *Store) Create(key Key, stage1 Stage1Record) (*Dir, error) {
	d := &Dir{store: s, uuid: newUUID(), state: dirEmbryo}
	err := d.make(key, stage1)
	if err == nil {
		return d, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
	defer cancel()
	return nil, errors.Join(fmt.Errorf("pod %s: %w", d.uuid, err), d.Remove(ctx))
}

// undoLimit is how long removing what could not be finished may take.
const undoLimit = 2 * time.Second

// make makes the directory and fills it.
func (d *Dir) make(key Key, stage1 Stage1Record) error {
	path := d.Path()
	if err := os.Mkdir(path, 0o750); err != nil {
		return err
	}
	d.store.Fault("mkdir embryo")
	var err error
	if d.lock, err = openDir(path); err != nil {
		return err
	}
	if err := flock(d.lock, unix.LOCK_EX); err != nil {
		return err
	}
	d.store.Fault("lock")
	if d.root, err = os.OpenRoot(path); err != nil {
		return err
	}
	if err := d.move(dirPrepare); err != nil {
		return err
	}
	return d.fill(key, stage1)
}

// fill writes what every pod has. shim.json comes first: it makes the directory
// ours, also to who finds it half made.
func (d *Dir) fill(key Key, stage1 Stage1Record) error {
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	self := os.Getpid()
	start, err := proc.StartTime(self)
	if err != nil {
		return err
	}
	d.shim = shimRecord{
		Version: recordVersion, BootID: boot,
		Daemon: key.Daemon, Namespace: key.Namespace, Sandbox: key.Sandbox,
		Shim:   processRecord{PID: self, StartTime: start},
		Stage1: stage1,
	}
	if err := d.writeShim(); err != nil {
		return err
	}
	if err := d.root.Mkdir(appsInfoDir, 0o750); err != nil {
		return err
	}
	// pod.lck is there before pod is: rkt's tools look for both.
	if err := createFile(d.root, podLockFile, 0o600, nil); err != nil {
		return err
	}
	if err := writeRecord(d.root, podFile, newPodManifest()); err != nil {
		return err
	}
	if err := createFile(d.root, podBirthFile, 0o640, nil); err != nil {
		return err
	}
	d.store.Fault("fill")
	return nil
}

// find returns where a pod is, of the states that ours have. The error is
// fs.ErrNotExist if it is nowhere. A pod moves in one direction only, so looking
// in that order misses none.
func (s *Store) find(uuid string) (*Dir, error) {
	for _, state := range []string{dirEmbryo, dirPrepare, dirRun, dirExited} {
		d, err := s.open(state, uuid)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
	return nil, fs.ErrNotExist
}

// open opens a pod that another process has made. The error is fs.ErrNotExist
// if it is not there. A directory without shim.json is opened as well; mine
// tells.
func (s *Store) open(state, uuid string) (*Dir, error) {
	if !isUUID(uuid) {
		return nil, fmt.Errorf("%q is not the UUID of a pod", uuid)
	}
	root, err := os.OpenRoot(s.path(state, uuid))
	if err != nil {
		return nil, err
	}
	d := &Dir{store: s, uuid: uuid, state: state, root: root}
	if err := readRecord(root, shimFile, &d.shim); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}
