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

// mountPoints returns the directories of a tree on which a pod mounts its own directories,
// and their parents.
func mountPoints() []string {
	return []string{"rootfs", "rootfs/opt", "rootfs/" + Stage2, "rootfs/rkt"}
}

// render makes the tree of an image, unless another process has made it meanwhile. Only one
// process renders at a time. After that, render collects unused trees, because old trees
// become unused when new ones replace them.
func (s *Store) render(ctx context.Context, source, want string) (*Image, error) {
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if i, err := s.last(source, want); !isGone(err) {
		return i, err
	}
	i, err := s.add(func(tmp string) (string, error) { return s.produce(ctx, source, tmp, want) })
	if err != nil {
		return nil, err
	}
	s.collectReplaced(ctx)
	return i, nil
}

// add returns the image of a tree that fill makes in tmp. The caller has the store's lock.
func (s *Store) add(fill func(tmp string) (digest string, err error)) (*Image, error) {
	if err := s.sweep(); err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(s.dir, tmpPrefix)
	if err != nil {
		return nil, err
	}
	digest, err := fill(tmp)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(tmp))
	}
	return s.hold(digest)
}

// produce renders an image in tmp, moves it into the store, and records the fingerprint of
// its source.
func (s *Store) produce(ctx context.Context, source, tmp, want string) (string, error) {
	before, _, err := fingerprint(source)
	if err != nil {
		return "", errIncomplete(err)
	}
	dirs := s.acis.searched(source)
	beforeAll, _, errAll := fingerprint(source, dirs...)
	f, err := s.acis.fill(ctx, source, tmp, s.allowed)
	if err != nil {
		return "", err
	}
	if err := s.install(f, source, tmp, want); err != nil {
		return "", err
	}
	if f.needs {
		before, err = beforeAll, errAll
	} else {
		dirs = nil
	}
	after, changed, errAfter := fingerprint(source, dirs...)
	if errors.Join(err, errAfter) != nil || after != before || time.Since(changed) < settled {
		return f.digest, nil // the tree is right, although the source has changed meanwhile
	}
	return f.digest, s.remember(source, after, f.digest, dirs)
}

// install verifies a tree in tmp, moves it to trees/DIGEST, and syncs both. If that tree
// exists already, install removes tmp.
func (s *Store) install(f filled, source, tmp, want string) error {
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
	for _, step := range []func() error{
		func() error { return makeMountPoints(tmp, source) }, // after the digest, which does not cover them
		func() error { return writeSum(tmp, f.isACI) },
		func() error { return os.Chmod(tmp, 0o755) },
		func() error { return syncTree(tmp) },
		func() error { return s.setAside(f.digest) },
		func() error { return os.Rename(tmp, s.tree(f.digest)) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return syncDir(s.dir)
}

// makeMountPoints makes the mount points that the tree in tmp lacks. It refuses a mount point
// that is a link, because a mount would follow the link.
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

// fill copies or unpacks an image into a directory. It computes the digest of the written
// files, so a change of the source meanwhile does no harm. allowed is passed to fillACI.
func (r *ACIs) fill(ctx context.Context, source, tmp string, allowed func(digest string) error) (f filled, err error) {
	st, err := os.Stat(source)
	if err != nil {
		return f, err
	}
	isOCI := false
	if !st.IsDir() {
		isOCI, err = isArchive(source)
	}
	switch {
	case err != nil:
	case isOCI:
		f.digest, err = fillArchive(ctx, source, tmp)
	case !st.IsDir():
		return r.fillACI(ctx, source, tmp, allowed)
	case IsLayout(source):
		f.digest, err = Layout(source).fill(ctx, tmp)
	default:
		if err = copyImage(ctx, source, tmp); err == nil {
			f.digest, err = treeDigest(tmp)
			err = errors.Join(err, isWhole(tmp, filepath.Join(source, "manifest")))
		}
	}
	return f, err
}

// verify checks a rendered image. Its errors name the source.
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
	if err := m.checkNames(source); err != nil {
		return err
	}
	return m.checkFiles(tmp, source)
}

// copyImage copies the manifest and the rootfs of an image directory. The copies belong to
// root, whoever owns the source. Hard links stay hard links.
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

// writeFile writes the content of a new file, sets its mode and closes it.
func writeFile(f *os.File, r io.Reader, mode fs.FileMode) error {
	_, err := io.Copy(f, r)
	return errors.Join(err, f.Chmod(mode&modeBits), f.Sync(), f.Close())
}

// syncTree syncs the directories of a tree, so that it survives a crash of the machine. Its
// files were synced when they were written.
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
