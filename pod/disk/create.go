package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Create makes the directory of a new pod: in the state prepare, locked, with
// its manifest and shim.json. This process is recorded as its shim, and cgroups as those
// that relative paths of cgroups are relative to. On failure nothing remains.
func (s *Store) Create(key Key, stage1 Stage1Record, cgroups map[string]string) (*Dir, error) {
	d := &Dir{store: s, uuid: newUUID(), state: dirEmbryo}
	err := d.make(key, stage1, cgroups)
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
func (d *Dir) make(key Key, stage1 Stage1Record, cgroups map[string]string) error {
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
	return d.fill(key, stage1, cgroups)
}

// fill writes what every pod has. shim.json comes first: by it a collector that
// finds the directory half made knows that it is a shim's.
func (d *Dir) fill(key Key, stage1 Stage1Record, cgroups map[string]string) error {
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
		Stage1: stage1, Cgroups: cgroups,
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
