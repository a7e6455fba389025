package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Dir is the directory of a pod. Its methods may be called concurrently.
type Dir struct {
	store *Store
	uuid  string
	made  bool // by this process

	// root is the open directory, and so is handle. They stay valid when the directory is
	// renamed.
	root   *os.Root
	handle handle
	// generation numbers the apps of this pod. It is not stored on disk, because only the
	// process that made a pod adds apps to it.
	generation atomic.Int64

	// writing is held while shim.json is written.
	writing sync.Mutex
	shim    shimRecord

	mu    sync.Mutex
	state string
	lock  *os.File // nil after ReleaseLock
}

// find opens the directory of a pod, in whichever of our states it is. The error is
// fs.ErrNotExist if there is none. A pod moves through the states in one direction, so a
// search in that order finds it.
func (s *Store) find(uuid string) (*Dir, error) {
	for _, state := range []string{dirEmbryo, dirPrepare, dirRun, dirExited} {
		d, err := s.open(state, uuid)
		if !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
	}
	return nil, fs.ErrNotExist
}

// open opens a pod that another process has made. The error is fs.ErrNotExist if it does
// not exist. A directory without shim.json is opened as well; mine reports whether it is a
// shim's.
func (s *Store) open(state, uuid string) (*Dir, error) {
	if !isUUID(uuid) {
		return nil, fmt.Errorf("%q is not the UUID of a pod", uuid)
	}
	root, err := os.OpenRoot(s.path(state, uuid))
	if err != nil {
		return nil, err
	}
	d := &Dir{store: s, uuid: uuid, state: state, root: root}
	if d.handle, err = openHandle(s.path(state, uuid)); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	err = readRecord(root, shimFile, &d.shim)
	if err != nil && d.lostWithPower() {
		err = nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.close()
		return nil, err
	}
	return d, nil
}

// lostWithPower is called if shim.json cannot be read. If the directory is of another boot, the file
// was not on the disk when the power failed, and an empty record of that boot takes its place.
func (d *Dir) lostWithPower() bool {
	boot, err := d.handle.readLink(bootLink)
	if err != nil {
		return false
	}
	d.shim = shimRecord{Version: recordVersion, BootID: boot}
	current, err := d.thisBoot()
	if err != nil || current {
		d.shim = shimRecord{}
		return false
	}
	return true
}

// UUID returns the pod's UUID.
func (d *Dir) UUID() string { return d.uuid }

// Path returns the present path of the directory.
func (d *Dir) Path() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.store.path(d.state, d.uuid)
}

// move renames the directory to another state. It does nothing if the directory has that
// state. No other process moves it while this one owns the pod.
func (d *Dir) move(state string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == state {
		return nil
	}
	if err := os.Rename(d.store.path(d.state, d.uuid), d.store.path(state, d.uuid)); err != nil {
		return err
	}
	d.state = state
	d.store.Fault("rename " + state)
	return nil
}

// Stage1 returns the stage1 of the pod.
func (d *Dir) Stage1() Stage1Record {
	d.writing.Lock()
	defer d.writing.Unlock()
	return d.shim.Stage1
}

// Run moves the directory to run/ and keeps the lock.
func (d *Dir) Run() error {
	if err := d.move(dirRun); err != nil {
		return fmt.Errorf("pod %s: %w", d.uuid, err)
	}
	return nil
}

// LockFile returns the locked directory, for Stage1.Run. It returns nil after ReleaseLock.
func (d *Dir) LockFile() *os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lock
}

// ReleaseLock closes this process's descriptor of the lock. The supervisor has another one,
// and the pod counts as exited when the supervisor has ended.
func (d *Dir) ReleaseLock() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lock == nil {
		return nil
	}
	err := d.lock.Close()
	d.lock = nil
	return err
}

// SetSupervisor records the process of `run` in shim.json.
func (d *Dir) SetSupervisor(s SupervisorRecord) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	d.shim.Supervisor = &s
	return d.writeShim()
}

func (d *Dir) writeShim() error {
	if err := d.write(d.made, shimFile, d.shim); err != nil {
		return fmt.Errorf("pod %s: %w", d.uuid, err)
	}
	d.store.Fault("write " + shimFile)
	return nil
}

// write writes a record, and keeps fields of other releases unless this process has made the
// record.
func (d *Dir) write(made bool, name string, v any) error {
	if made {
		return d.handle.write(name, v)
	}
	return writeRecord(d.root, name, v)
}

// mine reports whether a shim made the directory, and not rkt.
func (d *Dir) mine() bool { return d.shim.Version != 0 }

// thisBoot reports whether the pod was made since the machine was booted, so that its
// recorded pids are valid.
func (d *Dir) thisBoot() (bool, error) {
	boot, err := proc.BootID()
	return err == nil && d.shim.BootID == boot, err
}

// MarkExited moves the directory to exited-garbage/. The caller has waited for the end of
// the supervisor.
func (d *Dir) MarkExited() error {
	if err := d.move(dirExited); err != nil {
		return fmt.Errorf("pod %s: %w", d.uuid, err)
	}
	return nil
}

// Hold takes the lock for which awaitRemoval waits. The lock is held until release is
// called or this process ends.
func (d *Dir) Hold() (release func(), err error) {
	lock, err := lockManifest(d.root)
	if err != nil {
		return nil, fmt.Errorf("hold pod %s: %w", d.uuid, err)
	}
	return func() { _ = lock.Close() }, nil
}

// awaitRemoval waits until the process that called Hold has removed the pod or has ended.
// It returns the directory in its present state. The error is fs.ErrNotExist if the
// directory is gone.
func (d *Dir) awaitRemoval(ctx context.Context) (*Dir, error) {
	lock, err := openManifestLock(d.root)
	if err == nil {
		err = proc.FlockUntil(ctx, lock, unix.LOCK_EX)
	}
	if err == nil {
		err = lock.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("wait for the removal of pod %s: %w", d.uuid, err)
	}
	return d.store.find(d.uuid)
}

// Remove removes the directory, in any state. It takes the pod's lock first, and fails if
// the lock is not free before ctx is done, because a supervisor still runs. It unmounts
// mounts below the directory, and never follows them. If the directory is gone, it returns
// nil.
func (d *Dir) Remove(ctx context.Context) error {
	if err := d.remove(ctx); err != nil {
		return fmt.Errorf("remove pod %s: %w", d.uuid, err)
	}
	d.close()
	return nil
}

func (d *Dir) remove(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, lockLimit)
	defer cancel()
	err := d.takeLock(wait)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	path := d.Path()
	if err := UnmountBelow(path); err != nil {
		return err
	}
	d.store.Fault("unmount")
	if err := removeMounted(d.store.debugPath(d.uuid)); err != nil {
		return err
	}
	h := d.handle
	if h.dir == nil { // Create has failed early
		if h, err = openHandle(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		defer h.close()
	}
	if err := h.empty(shimFile, podLockFile, bootLink); err != nil {
		return err
	}
	d.store.Fault("remove content")
	// Remove shim.json last, because it marks the directory as a shim's. The collector also
	// collects a directory in which only pod.lck and the link to the boot are left.
	if err := h.remove(".", shimFile); err != nil {
		return err
	}
	d.store.Fault("remove " + shimFile)
	if err := h.empty(); err != nil {
		return err
	}
	if err := unix.Rmdir(path); err != nil && err != unix.ENOENT {
		return fmt.Errorf("rmdir %s: %w", path, err)
	}
	d.store.Fault("remove")
	return nil
}

// takeLock takes the lock of a pod whose supervisor has ended, unless this process has it
// already. The process that has the lock removes the pod. The error is fs.ErrNotExist if
// another process has removed it.
func (d *Dir) takeLock(ctx context.Context) error {
	if d.LockFile() != nil {
		return nil
	}
	lock, err := lockDir(ctx, d.Path())
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.lock = lock
	d.mu.Unlock()
	return nil
}

// close closes the descriptors, which releases the lock.
func (d *Dir) close() {
	if d.root != nil {
		_ = d.root.Close()
	}
	d.handle.close()
	_ = d.ReleaseLock()
}

// names returns the names in a directory of the pod, sorted; none if it does not exist.
func (d *Dir) names(dir string) ([]string, error) {
	f, err := d.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // another process has removed it after the open
	}
	slices.Sort(names)
	return names, err
}
