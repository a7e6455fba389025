package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// mountPoints are what a pod needs in a tree to mount its own directories on, and the
// directories that these are in.
func mountPoints() []string {
	return []string{"rootfs", "rootfs/opt", "rootfs/opt/stage2", "rootfs/rkt"}
}

// render makes the tree of an image, unless another process has done so meanwhile. One
// process renders at a time. What nothing leads to any more goes then: it is by new
// trees that old ones become superfluous.
func (s *Store) render(ctx context.Context, source, want string) (*Image, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if i, err := s.last(source, want); !isGone(err) {
		return i, err
	}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return nil, err
	}
	digest, err := s.produce(ctx, source, tmp, want)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	i, err := s.hold(digest)
	if err != nil {
		return nil, err
	}
	s.collectReplaced(ctx)
	return i, nil
}

// produce renders an image in tmp, places it, and remembers what its source looks like.
func (s *Store) produce(ctx context.Context, source, tmp, want string) (string, error) {
	before, _, err := fingerprint(source)
	if err != nil {
		return "", errIncomplete(err)
	}
	dirs := s.acis.searched(source)
	beforeAll, _, errAll := fingerprint(source, dirs...)
	f, err := s.fill(ctx, source, tmp)
	if err != nil {
		return "", err
	}
	if err := s.settle(f, source, tmp, want); err != nil {
		return "", err
	}
	if f.needs {
		before, err = beforeAll, errAll
	} else {
		dirs = nil
	}
	after, changed, errAfter := fingerprint(source, dirs...)
	if errors.Join(err, errAfter) != nil || after != before || time.Since(changed) < settled {
		return f.digest, nil // the tree is right; only what the source is called may not be
	}
	return f.digest, s.remember(source, after, f.digest, dirs)
}

// settle verifies a tree in tmp and moves it to where its digest says, and makes
// that survive a crash. tmp is gone if there was such a tree already.
func (s *Store) settle(f filled, source, tmp, want string) error {
	if err := matches(f.digest, want); err != nil {
		return err
	}
	if err := verify(tmp, source); err != nil {
		return err
	}
	switch err := s.intact(f.digest); {
	case err == nil:
		return os.RemoveAll(tmp)
	case !isGone(err):
		return err
	}
	// After the digest was taken: these are ours, not the image's.
	if err := makeMountPoints(tmp, source); err != nil {
		return err
	}
	if err := writeSum(tmp, f.isACI); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := syncTree(tmp); err != nil {
		return err
	}
	if err := s.setAside(f.digest); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.tree(f.digest)); err != nil {
		return err
	}
	return syncDir(s.dir)
}

// makeMountPoints makes the mount points that the tree in tmp does not have. None may be
// a link, for what is made or mounted there would be where the link leads.
func makeMountPoints(tmp, source string) error {
	root, err := os.OpenRoot(tmp)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, dir := range mountPoints() {
		if err := root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		st, err := root.Lstat(dir)
		if err != nil {
			return err
		}
		if !st.IsDir() {
			return invalid("%s has to be a directory, and neither a link nor a file", filepath.Join(source, dir))
		}
	}
	return nil
}

// fill copies or unpacks an image into a directory. The digest is that of what was
// written, whatever becomes of the source meanwhile.
func (s *Store) fill(ctx context.Context, source, tmp string) (filled, error) {
	return s.acis.fill(ctx, source, tmp, s.allowed)
}

func (r *ACIs) fill(ctx context.Context, source, tmp string, allowed func(digest string) error) (f filled, err error) {
	st, err := os.Stat(source)
	if err != nil {
		return f, err
	}
	if !st.IsDir() {
		return r.fillFile(ctx, source, tmp, allowed)
	}
	if isLayout(source) {
		f.digest, err = layout(source).fill(ctx, tmp)
		return f, err
	}
	if err := copyImage(ctx, source, tmp); err != nil {
		return f, err
	}
	f.digest, err = treeDigest(tmp)
	return f, errors.Join(err, isWhole(tmp, filepath.Join(source, "manifest")))
}

// fillFile unpacks an image that is one file.
func (r *ACIs) fillFile(ctx context.Context, source, tmp string, allowed func(digest string) error) (f filled, err error) {
	isOCI, err := isArchive(source)
	if err != nil {
		return f, err
	}
	if isOCI {
		f.digest, err = fillArchive(ctx, source, tmp)
		return f, err
	}
	return r.fillACI(ctx, source, tmp, allowed)
}

// verify checks a rendered image, with the names of the source in the errors.
func verify(tmp, source string) error {
	text, err := readManifest(filepath.Join(tmp, "manifest"))
	if errors.Is(err, fs.ErrNotExist) {
		return invalid("there is no manifest in it; docs/stage1-abi.md, section 1, describes an image")
	}
	if err != nil {
		return err
	}
	m, err := parseManifest(text, filepath.Join(source, "manifest"))
	if err != nil {
		return err
	}
	return m.checkFiles(tmp, source)
}

// copyImage copies the manifest and the rootfs of an image directory. All of it
// belongs to root then, whoever built it; hard links stay hard links.
func copyImage(ctx context.Context, from, to string) error {
	linked := map[inode]string{}
	return walkImage(from, func(rel string, st fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		src, dst := filepath.Join(from, rel), filepath.Join(to, rel)
		switch {
		case st.IsDir():
			if err := os.Mkdir(dst, 0o700); err != nil {
				return err
			}
			return os.Chmod(dst, st.Mode()&modeBits)
		case st.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(src)
			if err != nil {
				return err
			}
			return os.Symlink(target, dst)
		case st.Mode().IsRegular():
			return copyFile(src, dst, st, linked)
		}
		return errNotAFile(src)
	})
}

type inode struct{ dev, ino uint64 }

func copyFile(src, dst string, st fs.FileInfo, linked map[inode]string) error {
	if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Nlink > 1 {
		at := inode{s.Dev, s.Ino}
		if first, ok := linked[at]; ok {
			return os.Link(first, dst)
		}
		linked[at] = dst
	}
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return writeFile(out, in, st.Mode())
}

// writeFile fills a new file, gives it its mode and closes it.
func writeFile(f *os.File, r io.Reader, mode fs.FileMode) error {
	_, err := io.Copy(f, r)
	return errors.Join(err, f.Chmod(mode&modeBits), f.Sync(), f.Close())
}

// syncTree makes the directories of a tree survive a crash of the machine. Its
// files were synced as they were written.
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
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}
