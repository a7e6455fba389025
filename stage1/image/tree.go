package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

const (
	sumFile       = "sum"
	checkedDir    = "checked"
	damagedPrefix = ".damaged-"
)

// errGone is the error for a tree that is not in the store.
var errGone = fmt.Errorf("there is no such tree: %w", errdefs.ErrNotFound)

// errDamaged is the error for a tree that was changed after it was rendered.
var errDamaged = fmt.Errorf("its tree in the store was changed after it was rendered: import it again: %w", errdefs.ErrDataLoss)

// isGone reports whether the tree of this error has to be rendered again.
func isGone(err error) bool { return errors.Is(err, errGone) || errors.Is(err, errDamaged) }

// sum is a record beside a tree. The digest of an image covers its source; the sum covers
// the rendered tree.
type sum struct {
	Version int    `json:"version"` // 1
	Sum     string `json:"sum"`
	ACI     bool   `json:"aci,omitempty"` // the image came as an ACI
}

// checked is the record of a tree whose sum was verified.
type checked struct {
	Version     int    `json:"version"` // 1
	BootID      string `json:"bootID"`
	Fingerprint string `json:"fingerprint"`
}

// writeSum writes the sum of a tree that is complete.
func writeSum(tree string, isACI bool) error {
	got, err := treeSum(tree)
	if err != nil {
		return err
	}
	return writeSynced(filepath.Join(tree, sumFile), os.O_EXCL, sum{Version: 1, Sum: got, ACI: isACI})
}

func readSum(tree string) (s sum, err error) {
	if readRecord(filepath.Join(tree, sumFile), &s) != nil || s.Version != 1 {
		return s, errDamaged
	}
	return s, nil
}

// intact returns nil if a tree has not changed since it was rendered, otherwise errGone or
// errDamaged. It reads the whole tree at its first use in each boot, and when the
// attributes of one of its files have changed. So it finds errors of the disk as well as
// edited files. Pods cannot change a tree, because it is mounted read-only.
func (s *Store) intact(digest string) error {
	tree := s.tree(digest)
	if _, err := os.Lstat(tree); errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	print, _, err := fingerprint(tree)
	if errors.Is(err, fs.ErrNotExist) {
		return errDamaged
	}
	if err != nil {
		return err
	}
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	now := checked{Version: 1, BootID: boot, Fingerprint: print}
	var then checked
	record := filepath.Join(s.dir, checkedDir, digest+".json")
	if readRecord(record, &then) == nil && then == now {
		return nil
	}
	want, err := readSum(tree)
	if err != nil {
		return err
	}
	got, err := treeSum(tree)
	unreadable := errors.Is(err, unix.EIO) || errors.Is(err, fs.ErrNotExist) || errdefs.IsInvalidArgument(err)
	if unreadable || err == nil && got != want.Sum {
		return errDamaged
	}
	if err != nil {
		return err
	}
	_ = replace(record, now) // without the record the tree would be read once more
	return nil
}

// hold returns the image of a tree that is in the store and intact. The tree is not
// collected while the Image is open.
func (s *Store) hold(digest string) (*Image, error) {
	lock, err := lockTree(s.tree(digest), unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	i, err := s.openIntact(digest)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	i.lock = lock
	return i, nil
}

func (s *Store) openIntact(digest string) (*Image, error) {
	if err := s.intact(digest); err != nil {
		return nil, err
	}
	i, err := openImage(s.tree(digest), digest)
	if err != nil {
		return nil, err
	}
	came, err := readSum(i.dir)
	i.isACI = came.ACI
	return i, err
}

// lockTree locks a tree: shared to use it, exclusively to remove it. It returns errGone if
// the tree does not exist, or was removed before lockTree had the lock.
func lockTree(tree string, how int) (*os.File, error) {
	f, err := proc.Lock(tree, os.O_RDONLY, how)
	if f == nil && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		return nil, errGone
	}
	return f, err
}

// setAside moves a changed tree away, so that it can be rendered again. Pods that have the
// changed tree mounted continue to use it. It is collected when they are gone.
func (s *Store) setAside(digest string) error {
	if _, err := os.Lstat(s.tree(digest)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := os.MkdirTemp(s.dir, damagedPrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(s.tree(digest), filepath.Join(dir, digest)); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return nil
}
