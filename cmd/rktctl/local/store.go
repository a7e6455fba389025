package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Names of files and directories below the data directory.
const (
	localDir = "local" // of all local pods
	appsDir  = "apps"  // of a pod
	logsDir  = "logs"
	execsDir = "execs"
)

// dirMode keeps everybody but root away from bundles, logs and streams.
const dirMode = 0o700

// Store has the local pods of a data directory.
type Store struct {
	// DataDir is the data directory, which the servers use, too.
	DataDir string
	// Shim is the path of the shim's program; empty: FindShim finds it.
	Shim string
	// Env is the environment of servers.
	Env []string
	// CgroupParent is the cgroup below which pods get theirs: DefaultCgroupParent, or another
	// path below the root of every hierarchy.
	CgroupParent string
	// Network is the network of a pod whose request names none.
	Network string
	// CNIConfig is the directory of CNI's configurations, and CNIPlugins are those of its plugins.
	CNIConfig  string
	CNIPlugins []string

	// Fault is called after every step that changes something. Tests end the process in it.
	Fault func(step string)
}

// DefaultCgroupParent is the cgroup of all local pods.
const DefaultCgroupParent = "/rkt"

func (s *Store) fault(step string) {
	if s.Fault != nil {
		s.Fault(step)
	}
}

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.DataDir, localDir}, elem...)...)
}

// make makes the directory of local pods.
func (s *Store) make() error {
	if err := datadir.Make(s.DataDir, datadir.Mode); err != nil {
		return err
	}
	return datadir.Make(s.path(), dirMode)
}

// UUIDs lists the local pods, sorted, also those that are being made or removed.
func (s *Store) UUIDs() ([]string, error) {
	entries, err := os.ReadDir(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var uuids []string
	for _, e := range entries {
		if isUUID(e.Name()) && e.IsDir() {
			uuids = append(uuids, e.Name())
		}
	}
	return uuids, nil
}

// Open opens the pod whose UUID begins with prefix. The error unwraps to errdefs.ErrNotFound
// if there is none, and to errdefs.ErrInvalidArgument if there are several.
func (s *Store) Open(prefix string) (*Pod, error) {
	uuids, err := s.UUIDs()
	if err != nil {
		return nil, err
	}
	uuids = slices.DeleteFunc(uuids, func(u string) bool { return prefix == "" || !strings.HasPrefix(u, strings.ToLower(prefix)) })
	switch len(uuids) {
	case 0:
		return nil, fmt.Errorf("there is no local pod %q: rktctl app list shows them all: %w", prefix, errdefs.ErrNotFound)
	case 1:
		return s.open(uuids[0])
	}
	return nil, fmt.Errorf("%q begins the UUIDs of %d pods, %s: %w", prefix, len(uuids), strings.Join(uuids, " and "), errdefs.ErrInvalidArgument)
}

func (s *Store) open(uuid string) (*Pod, error) {
	p := &Pod{store: s, uuid: uuid}
	err := readRecord(p.path(podFile), &p.record)
	if errdefs.IsDataLoss(err) { // it must not hide other pods, and can be removed
		p.record, err = s.damagedPod(uuid), nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = os.Stat(p.path()); err == nil { // its maker was killed before it wrote the record
			p.record = podRecord{Version: recordVersion, State: podCreating}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("pod %s: %w", uuid, errdefs.ErrNotFound)
	}
	return p, err
}

// unfinished reports whether the creation or the removal of the pod was interrupted.
func (p *Pod) unfinished() bool {
	return p.record.State == podCreating || p.record.State == podRemoving
}

// sweep removes pods whose creation or removal was interrupted. It skips those that another
// command is working on.
func (s *Store) sweep(ctx context.Context) error {
	uuids, err := s.UUIDs()
	errs := []error{err}
	for _, uuid := range uuids {
		p, err := s.open(uuid)
		if err != nil || !p.unfinished() {
			continue
		}
		lock, err := lock(ctx, p.path(), false)
		if err != nil || lock == nil {
			continue
		}
		// The record may be newer than the lock.
		if p, err = s.open(uuid); err == nil && p.unfinished() {
			errs = append(errs, p.remove(ctx))
		}
		lock.Close()
	}
	return errors.Join(errs...)
}

// lock takes the lock of a directory, for commands that change what is in it. It returns nil if
// the directory was removed meanwhile or, unless wait is set, if another process has the lock.
func lock(ctx context.Context, dir string, wait bool) (*os.File, error) {
	const flags = os.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
	f, err := proc.Lock(dir, flags, unix.LOCK_EX|unix.LOCK_NB)
	if wait && errors.Is(err, unix.EWOULDBLOCK) {
		f, err = waitForLock(ctx, dir, flags)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return f, err
}

func waitForLock(ctx context.Context, dir string, flags int) (*os.File, error) {
	f, err := os.OpenFile(dir, flags, 0)
	if err != nil {
		return nil, err
	}
	if err := proc.FlockUntil(ctx, f, unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("wait for another command on %s: %w", filepath.Base(dir), err)
	}
	opened, err := f.Stat()
	if err == nil {
		var named os.FileInfo
		if named, err = os.Lstat(dir); err == nil && os.SameFile(opened, named) {
			return f, nil
		}
	}
	f.Close()
	return nil, err
}

// newUUID returns a random UUID (version 4) in the canonical form.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// isUUID reports whether a name has the form of a UUID.
func isUUID(s string) bool {
	return len(s) == 36 && strings.Count(s, "-") == 4 && strings.Trim(s, "0123456789abcdef-") == ""
}
