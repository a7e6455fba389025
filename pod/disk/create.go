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

// Create makes the directory of a new pod: locked, in the state prepare, with its
// manifest and shim.json. shim.json records this process as the pod's shim. It also
// records the paths of containerd's own cgroups, one for each controller (cgroups),
// because relative cgroup paths of apps are below these. If Create fails, nothing remains.
func (s *Store) Create(key Key, stage1 Stage1Record, cgroups map[string]string) (*Dir, error) {
	d := &Dir{store: s, uuid: key.uuid(), made: true, state: dirEmbryo}
	err := d.make(key, stage1, cgroups)
	if err == nil {
		return d, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), undoLimit)
	defer cancel()
	return nil, errors.Join(fmt.Errorf("pod %s: %w", d.uuid, err), d.Remove(ctx))
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
	if d.handle, err = openHandle(path); err != nil {
		return err
	}
	if err := d.move(dirPrepare); err != nil {
		return err
	}
	return d.fill(key, stage1, cgroups)
}

// fill writes the files that every pod has. shim.json comes first: a collector that
// finds an unfinished directory recognises a shim's directory by it.
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
