package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Store is the tree store: images by digest. Every image in it is complete. The zero value
// has no images, and none can be added.
//
//	trees/DIGEST/{manifest,rootfs}   an image; never changed
//	trees/DIGEST/sum                 the digest of the rendered tree
//	trees/known/HASH.json            the digest of a source whose files have not changed since
//	trees/checked/DIGEST.json        the fingerprint of a tree that was verified in this boot
//	trees/imported/DIGEST.json       the record of an import
//	trees/.tmp-*                     a tree that is being made, or that was abandoned
//	trees/.damaged-*                 a changed tree, until no pod has it
//	trees/.lock                      locked while a tree is made, or trees are collected
type Store struct {
	// Wanted returns the digests of images that the configuration names. If it is set,
	// unused trees are collected when a new one is rendered.
	Wanted func() ([]string, error)

	dir  string
	acis ACIs
}

// IDFile is the file in a pod's directory that contains the digest of the pod's stage1.
const IDFile = "stage1TreeStoreID"

const (
	knownDir  = "known"
	lockFile  = ".lock"
	tmpPrefix = ".tmp-"
)

// OpenStore opens the tree store of a data directory and makes missing directories.
func OpenStore(dataDir string) (_ *Store, err error) {
	defer prefix(&err, "open the stage1 tree store")
	if dataDir, err = filepath.Abs(dataDir); err != nil {
		return nil, err
	}
	s := &Store{dir: filepath.Join(dataDir, "trees")}
	if err := datadir.Make(dataDir, datadir.Mode); err != nil {
		return nil, err
	}
	// Only root may enter the directory. Pods see their tree through a mount.
	if err := datadir.Make(s.dir, 0o700); err != nil {
		return nil, err
	}
	return s, os.MkdirAll(filepath.Join(s.dir, knownDir), 0o755)
}

// Image returns the image at path from the store. If the image is new, Image renders it
// first. The path is that of a directory, an ACI, or an OCI image as layout or archive.
// Several processes may call Image concurrently. If wantDigest is not empty and the image
// has another digest, the error is errdefs.ErrInvalidArgument, and nothing of the image is
// kept.
func (s *Store) Image(ctx context.Context, path, wantDigest string) (_ *Image, err error) {
	defer prefix(&err, "stage1 image %s", path)
	return s.image(ctx, path, wantDigest)
}

func (s *Store) image(ctx context.Context, path, want string) (*Image, error) {
	if want != "" && !isDigest(want) {
		return nil, invalid("the wanted digest %q is not \"sha512-\" and 128 digits of 0-9 and a-f", want)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	i, err := s.last(path, want)
	if isGone(err) {
		i, err = s.render(ctx, path, want)
	}
	if err != nil {
		return nil, err
	}
	return s.ifSigned(i)
}

// last returns the image of a source that has not changed since it was rendered. The
// error is errGone or errDamaged if the image has to be rendered.
func (s *Store) last(path, want string) (*Image, error) {
	digest, ok := s.remembered(path)
	if !ok {
		return nil, errGone
	}
	if err := matches(digest, want); err != nil {
		return nil, err
	}
	return s.hold(digest)
}

// errIncomplete explains that an image cannot be read.
func errIncomplete(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("an image is an ACI, an OCI layout or archive, or a directory with a file \"manifest\" and a directory \"rootfs\": %w", err)
	}
	return err
}

func matches(digest, want string) error {
	if want == "" || want == digest {
		return nil
	}
	return invalid("the digest is %s and has to be %s: the image is another one or was changed; install the right one, or ask for this digest", digest, want)
}

// Load returns the image that a pod was started with, whether or not its tree is
// attached.
func (s *Store) Load(podDir string) (_ *Image, err error) {
	defer prefix(&err, "stage1 of pod %s", filepath.Base(podDir))
	id, err := proc.ReadFile(filepath.Join(podDir, IDFile))
	if err != nil {
		return nil, err
	}
	digest := strings.TrimSpace(string(id))
	if !isDigest(digest) {
		return nil, fmt.Errorf("%s holds %.40q and not a digest: %w", IDFile, id, errdefs.ErrDataLoss)
	}
	return openImage(s.tree(digest), digest)
}

func (s *Store) tree(digest string) string { return filepath.Join(s.dir, digest) }

// lock takes the store's lock. It gives up when ctx is done. The kernel releases the lock
// when the process ends.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	switch err := proc.FlockUntil(ctx, f, unix.LOCK_EX); {
	case err != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("wait for another process that renders an image: %w", err)
	case err != nil:
		return nil, fmt.Errorf("lock the stage1 tree store: %w", err)
	}
	return func() { _ = f.Close() }, nil
}

// sweep removes the files of processes that were killed while they rendered. The caller
// has the lock, so no other process is rendering.
func (s *Store) sweep() error {
	var err error
	for _, dir := range []string{".", knownDir, checkedDir, importedDir, probedDir} {
		old, globErr := filepath.Glob(filepath.Join(s.dir, dir, tmpPrefix+"*"))
		err = errors.Join(err, globErr)
		for _, path := range old {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	empty, globErr := filepath.Glob(filepath.Join(s.dir, damagedPrefix+"*"))
	for _, dir := range empty {
		_ = os.Remove(dir) // fails if there is a tree in it
	}
	return errors.Join(err, globErr)
}
