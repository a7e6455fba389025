package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Create makes the directory of a new pod: locked, in the state prepare, with its
// manifest and shim.json. shim.json records this process as the pod's shim. It also
// records the paths of containerd's own cgroups, one for each controller (cgroups),
// because relative cgroup paths of apps are below these. If Create fails, nothing remains.
func (s *Store) Create(key Key, stage1 Stage1Record, cgroups map[string]string) (*Dir, error) {
	boot, err := proc.BootID()
	if err != nil {
		return nil, err
	}
	d, err := s.embryo(key, boot)
	if err != nil {
		return nil, err
	}
	if err := d.fill(boot, key, stage1, cgroups); err != nil {
		return nil, d.undo(err)
	}
	return d, nil
}

// embryoTries is how often a directory is made if it is gone before it is locked. If the clock is set
// forward, another shim may take the new directory for an abandoned one (unfilled).
const embryoTries = 3

// embryo makes a directory, locks it and moves it to the state prepare.
func (s *Store) embryo(key Key, boot string) (d *Dir, err error) {
	for range embryoTries {
		d = &Dir{store: s, uuid: key.uuid(), made: true, state: dirEmbryo}
		if err := os.Mkdir(d.Path(), 0o750); err != nil {
			return nil, fmt.Errorf("pod %s: %w", d.uuid, err)
		}
		if err = d.lockNew(boot); err == nil {
			return d, nil
		}
		if err = d.undo(err); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, err
}

// undo removes the directory after a failure.
func (d *Dir) undo(err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
	defer cancel()
	return errors.Join(fmt.Errorf("pod %s: %w", d.uuid, err), d.Remove(ctx))
}

// uuid returns the UUID of a new pod. The id of a local pod's sandbox is its UUID, because
// rktctl prints it before it can read the pod's directory.
func (k Key) uuid() string {
	if k.Daemon == "" && isUUID(k.Sandbox) {
		return k.Sandbox
	}
	return newUUID()
}

// undoLimit is how long the removal of an unfinished directory may take.
const undoLimit = 2 * time.Second

// lockNew locks a directory that this process has just made, and moves it to the state prepare. The error
// is fs.ErrNotExist if another process has removed it.
func (d *Dir) lockNew(boot string) (err error) {
	path := d.Path()
	d.store.Fault("mkdir embryo")
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
	if d.handle, err = openHandle(path); err != nil {
		return err
	}
	if err := d.handle.link(bootLink, boot); err != nil {
		return err
	}
	d.store.Fault("link " + bootLink)
	return d.move(dirPrepare)
}

// fill writes the files that every pod has. shim.json comes first: a collector that
// finds an unfinished directory recognises a shim's directory by it.
func (d *Dir) fill(boot string, key Key, stage1 Stage1Record, cgroups map[string]string) error {
	self := os.Getpid()
	start, err := proc.StartTime(self)
	if err != nil {
		return err
	}
	d.shim = shimRecord{
		Version: recordVersion, BootID: boot,
		Daemon: key.Daemon, Namespace: key.Namespace, Sandbox: key.Sandbox,
		Shim:   ProcessRecord{PID: self, StartTime: start},
		Stage1: stage1, Cgroups: cgroups,
	}
	if err := d.writeShim(); err != nil {
		return err
	}
	if err := d.root.Mkdir(appsInfoDir, 0o750); err != nil {
		return err
	}
	// Make pod.lck before pod, because rkt's tools look for both.
	if err := createFile(d.root, podLockFile, 0o600, nil); err != nil {
		return err
	}
	if err := d.handle.createText(podFile, newPodManifest); err != nil {
		return err
	}
	d.store.Fault("fill")
	return nil
}
