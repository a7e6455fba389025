package appimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Store has the unpacked trees of images, by the digest of their layers (the chain id of the
// OCI image spec). Every tree in it is complete. docs/layout.md describes its files.
type Store struct {
	dir    string // images/ in the data directory
	limits limits
}

const (
	lockFile      = ".lock"
	tmpPrefix     = ".tmp-"
	damagedPrefix = ".damaged-"
	treePrefix    = "sha256-"
	recordFile    = "record.json"
	rootfsDir     = "rootfs"
)

// keepUnused is how long a tree is kept for the next app, if nothing but the arrival of
// another tree asks for its removal.
const keepUnused = 24 * time.Hour

// errGone is the error for a tree that has to be unpacked: it is not in the store, or it was
// changed.
var errGone = fmt.Errorf("there is no such tree: %w", errdefs.ErrNotFound)

// record is the file record.json of a tree.
type record struct {
	Version     int       `json:"version"`     // 1
	Name        string    `json:"name"`        // the reference by which the image was opened first
	Bytes       int64     `json:"bytes"`       // of all files
	Time        time.Time `json:"time"`        // at which it was unpacked
	Fingerprint string    `json:"fingerprint"` // of the attributes of all files
}

// OpenStore opens the store of a data directory, and makes missing directories.
func OpenStore(dataDir string) (*Store, error) {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: filepath.Join(dataDir, "images"), limits: defaultLimits()}
	if err := datadir.Make(dataDir, datadir.Mode); err != nil {
		return nil, err
	}
	// A tree may have set-id programs, so only root may enter the directory.
	return s, datadir.Make(s.dir, 0o700)
}

// tree is an unpacked image that is locked against collection.
type tree struct {
	dir  string
	lock *os.File
}

func (t *tree) id() string     { return filepath.Base(t.dir) }
func (t *tree) rootfs() string { return filepath.Join(t.dir, rootfsDir) }

// treeID returns the name of the tree of an image.
func (s *source) treeID() string {
	chain := identity.ChainID(s.config.RootFS.DiffIDs)
	if chain == "" { // no layers
		chain = digest.FromString("")
	}
	return treePrefix + chain.Encoded()
}

// tree returns the tree of an image. It unpacks the image, unless that was done before. Only
// one process unpacks at a time.
func (s *Store) tree(ctx context.Context, from *source, name string) (*tree, error) {
	id := from.treeID()
	t, err := s.hold(id)
	if !errors.Is(err, errGone) {
		return t, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if t, err := s.hold(id); !errors.Is(err, errGone) {
		return t, err
	}
	if err := s.make(ctx, id, from, name); err != nil {
		return nil, err
	}
	// Old trees become unused when images are replaced. A tree that cannot be removed does no
	// harm to the app, and `rktctl image gc` reports it.
	_, _ = s.collect(ctx, Collection{Unused: keepUnused})
	return s.hold(id)
}

// hold returns a tree that is in the store and was not changed, and locks it.
func (s *Store) hold(id string) (*tree, error) {
	dir := filepath.Join(s.dir, id)
	lock, err := proc.Lock(dir, os.O_RDONLY, unix.LOCK_SH)
	if lock == nil && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	r, err := readRecord(dir)
	if err == nil {
		var print string
		if print, _, err = fingerprint(filepath.Join(dir, rootfsDir)); err == nil && print != r.Fingerprint {
			err = errGone
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &tree{dir, lock}, nil
}

// readRecord returns errGone if there is no usable record.
func readRecord(dir string) (r record, err error) {
	text, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	if err != nil || json.Unmarshal(text, &r) != nil || r.Version != 1 {
		return r, errGone
	}
	return r, nil
}

// make unpacks an image into a directory beside the trees and renames it. The caller has the
// store's lock.
func (s *Store) make(ctx context.Context, id string, from *source, name string) (err error) {
	if err := s.sweep(); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	rootfs := filepath.Join(tmp, rootfsDir)
	if err := errors.Join(os.Mkdir(rootfs, 0o755), os.Chmod(rootfs, 0o755)); err != nil {
		return err
	}
	if err := from.unpack(ctx, rootfs, s.limits); err != nil {
		return err
	}
	r := record{Version: 1, Name: name, Time: time.Now().UTC()}
	if r.Fingerprint, r.Bytes, err = fingerprint(rootfs); err != nil {
		return err
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tmp, recordFile), text, 0o644); err != nil {
		return err
	}
	if err := syncFilesystem(tmp); err != nil {
		return err
	}
	if err := s.setAside(id); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, id)); err != nil {
		return err
	}
	return syncFilesystem(s.dir)
}

// syncFilesystem writes everything of a file system to the disk, so that a tree which is
// found after a crash of the machine is complete.
func syncFilesystem(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// setAside moves a changed tree away, so that it can be unpacked again. Apps that have the
// changed tree mounted continue to use it. It is collected when they are gone.
func (s *Store) setAside(id string) error {
	if _, err := os.Lstat(filepath.Join(s.dir, id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	dir, err := os.MkdirTemp(s.dir, damagedPrefix)
	if err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(s.dir, id), filepath.Join(dir, id)); err != nil {
		return errors.Join(err, os.Remove(dir))
	}
	return nil
}

// lock takes the store's lock. It gives up when ctx is done. The kernel releases the lock
// when the process ends.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := proc.FlockUntil(ctx, f, unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("wait for another process that unpacks an image: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// sweep removes the files of processes that were killed while they unpacked. The caller has
// the lock, so no other process is unpacking.
func (s *Store) sweep() error {
	old, err := filepath.Glob(filepath.Join(escape(s.dir), tmpPrefix+"*"))
	for _, path := range old {
		err = errors.Join(err, os.RemoveAll(path))
	}
	return err
}

// unnamed opens a temporary file without a name, which vanishes when it is closed.
func (s *Store) unnamed() (*os.File, error) {
	f, err := os.CreateTemp(s.dir, tmpPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) { // or swept
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// fingerprint returns a digest of the attributes of all files below a directory, and their
// length. Every change of a file changes the time of its last change, which no program can
// set. The number of the device is left out, because it may be another one after a reboot.
func fingerprint(dir string) (sum string, bytes int64, err error) {
	h := sha256.New()
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		s, ok := st.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s has no attributes", path)
		}
		if st.Mode().IsRegular() {
			bytes += s.Size
		}
		_, err = fmt.Fprintf(h, "%q %d %o %d %d %d %d %d %d %d\n", strings.TrimPrefix(path, dir),
			s.Ino, s.Mode, s.Uid, s.Gid, s.Rdev, s.Nlink, s.Size, s.Mtim.Nano(), s.Ctim.Nano())
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = errGone
	}
	return hex.EncodeToString(h.Sum(nil)), bytes, err
}
