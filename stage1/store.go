package stage1

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Store is the tree store: images by digest, complete or not there.
//
//	trees/DIGEST/{manifest,rootfs}   an image, never changed
//	trees/.tmp-*                     being rendered, or left behind
//	trees/.lock                      held while something is rendered
//	trees/known/HASH.json            the digest of an image directory
type Store struct{ dir string }

// OpenStore opens the tree store of a data directory and makes what is missing
// of it.
func OpenStore(dataDir string) (*Store, error) {
	s := &Store{dir: filepath.Join(dataDir, "trees")}
	if err := os.MkdirAll(filepath.Join(s.dir, "known"), 0o755); err != nil {
		return nil, fmt.Errorf("open the stage1 tree store: %w", err)
	}
	return s, nil
}

// Image returns the image at path, a directory or an ACI, from the store, and
// renders it there first if it is new. A wanted digest that it does not have is
// errdefs.ErrInvalidArgument; an empty one is not checked.
func (s *Store) Image(ctx context.Context, path, want string) (*Image, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("stage1 image: %w", err)
	}
	var digest string
	if st.IsDir() {
		digest, err = s.directory(ctx, path)
	} else {
		digest, err = s.archive(ctx, path)
	}
	if err != nil {
		return nil, err
	}
	if want != "" && want != digest {
		return nil, fmt.Errorf("stage1 image %s has the digest %s, and %s was asked for: %w", path, digest, want, errdefs.ErrInvalidArgument)
	}
	return s.open(digest)
}

// Load returns the image that a pod was started with.
func (s *Store) Load(podDir string) (*Image, error) {
	id, err := os.ReadFile(filepath.Join(podDir, treeIDFile))
	if err != nil {
		return nil, fmt.Errorf("stage1 of pod %s: %w", filepath.Base(podDir), err)
	}
	return s.open(strings.TrimSpace(string(id)))
}

func (s *Store) open(digest string) (*Image, error) {
	if !isDigest(digest) {
		return nil, fmt.Errorf("%.150q is not a digest: %w", digest, errdefs.ErrInvalidArgument)
	}
	return openImage(filepath.Join(s.dir, digest), digest)
}

func isDigest(d string) bool {
	if len(d) != digestLen || !strings.HasPrefix(d, digestPrefix) {
		return false
	}
	_, err := hex.DecodeString(d[len(digestPrefix):])
	return err == nil
}

// known is what is remembered of an image directory.
type known struct {
	Version     int    `json:"version"`
	Path        string `json:"path"`
	Fingerprint string `json:"fingerprint"`
	Digest      string `json:"digest"`
}

// record returns the file that remembers a source.
func (s *Store) record(source string) string {
	sum := sha256.Sum256([]byte(source))
	return filepath.Join(s.dir, "known", hex.EncodeToString(sum[:])+".json")
}

// directory returns the digest of an image directory whose tree is in the store.
func (s *Store) directory(ctx context.Context, dir string) (string, error) {
	print, err := fingerprint(dir)
	if err != nil {
		return "", err
	}
	record := s.record(dir)
	if k, ok := readKnown(record); ok && k.Path == dir && k.Fingerprint == print && s.has(k.Digest) {
		return k.Digest, nil
	}
	digest, err := s.render(ctx, func(tmp string) (string, error) {
		if err := copyImage(dir, tmp); err != nil {
			return "", err
		}
		return treeDigest(tmp) // of what was written, whatever becomes of the source
	})
	if err != nil {
		return "", fmt.Errorf("stage1 image %s: %w", dir, err)
	}
	return digest, writeKnown(record, known{Version: 1, Path: dir, Fingerprint: print, Digest: digest})
}

func (s *Store) has(digest string) bool {
	_, err := os.Stat(filepath.Join(s.dir, digest))
	return err == nil
}

// render has a directory filled with an image and moves it into place under the
// digest that fill returns. One process renders at a time; what another left half
// done is removed.
func (s *Store) render(ctx context.Context, fill func(tmp string) (digest string, err error)) (string, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := s.sweep(); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(s.dir, ".tmp-")
	if err != nil {
		return "", err
	}
	digest, err := s.place(tmp, fill)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return digest, nil
}

func (s *Store) place(tmp string, fill func(tmp string) (string, error)) (string, error) {
	digest, err := fill(tmp)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(tmp, "manifest"))
	if err != nil {
		return "", err
	}
	m, err := parseManifest(text, "manifest")
	if err != nil {
		return "", err
	}
	if err := m.checkFiles(filepath.Join(tmp, "rootfs")); err != nil {
		return "", err
	}
	if s.has(digest) {
		return digest, os.RemoveAll(tmp)
	}
	// After the digest: the mount points are ours, not the image's.
	for _, dir := range []string{"rootfs/opt/stage2", "rootfs/rkt"} {
		if err := os.MkdirAll(filepath.Join(tmp, dir), 0o755); err != nil {
			return "", err
		}
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := syncTree(tmp); err != nil {
		return "", err
	}
	if err := os.Rename(tmp, filepath.Join(s.dir, digest)); err != nil {
		return "", err
	}
	return digest, syncDir(s.dir)
}

// lock takes the store's lock, or gives up with ctx.
func (s *Store) lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(s.dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		// The goroutine ends when the other process lets go, and the lock with
		// the file.
		go func() { <-done; f.Close() }()
		return nil, fmt.Errorf("wait for another process to render a stage1 image: %w", ctx.Err())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the stage1 tree store: %w", err)
	}
	return func() { f.Close() }, nil
}

// sweep removes what a process left that died while it rendered. The caller has
// the lock.
func (s *Store) sweep() error {
	old, err := filepath.Glob(filepath.Join(s.dir, ".tmp-*"))
	for _, dir := range old {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// replaceFile writes a file by rename.
func replaceFile(path string, text []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// copyImage copies the manifest and the rootfs of an image directory.
func copyImage(from, to string) error {
	return walkImage(from, func(rel string, st fs.FileInfo) error {
		src, dst := filepath.Join(from, rel), filepath.Join(to, rel)
		switch {
		case st.IsDir():
			if err := os.Mkdir(dst, 0o755); err != nil {
				return err
			}
			return os.Chmod(dst, st.Mode().Perm())
		case st.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(src)
			if err != nil {
				return err
			}
			return os.Symlink(link, dst)
		case st.Mode().IsRegular():
			f, err := os.Open(src)
			if err != nil {
				return err
			}
			defer f.Close()
			return writeFile(dst, f, st.Mode())
		}
		return fmt.Errorf("%s is neither a file, a directory nor a symbolic link: %w", src, errdefs.ErrInvalidArgument)
	})
}

// writeFile makes a file with exactly these permission bits.
func writeFile(path string, r io.Reader, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return fill(f, r, mode)
}

// fill writes a new file and closes it.
func fill(f *os.File, r io.Reader, mode fs.FileMode) error {
	_, err := io.Copy(f, r)
	return errors.Join(err, f.Chmod(mode.Perm()), f.Sync(), f.Close())
}

// syncTree makes a rendered image survive a crash of the machine. Its files were
// synced as they were written.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(p)
	})
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
