package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/ulikunitz/xz"
)

// maxImage is the largest size of an unpacked image, in bytes.
const maxImage = 8 << 30

// unpack unpacks the wanted entries of an ACI and returns appc's image id, which is the
// digest of the uncompressed tar. left is how many bytes the entries may still unpack to.
// All names are resolved inside the directory, with their symbolic links, so the tar cannot
// write outside of it.
//
// Package aci of appc/spec has a reader, too. It is not used, because it links net/http,
// unpacks xz in a child process, and ends the caller if there is no xz.
func unpack(ctx context.Context, file string, to *os.Root, left *int64, wanted func(*tar.Header) bool) (string, error) {
	f, plain, err := openACI(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha512.New()
	limited := &io.LimitedReader{R: plain, N: maxImage}
	r := io.TeeReader(limited, h)
	err = extract(ctx, tar.NewReader(r), to, left, wanted)
	if err == nil {
		_, err = io.Copy(io.Discard, r) // the image id also covers bytes after the end marker
	}
	switch {
	case limited.N <= 0:
		return "", errTooLong()
	case err != nil:
		return "", err
	}
	return digestText(h), nil
}

// A path of an image has at most maxPath bytes and maxDepth directories: to make a file takes as many steps as it has directories,
// and so does each step.
const (
	maxPath  = 3 << 10
	maxDepth = 256
)

// checkPlace refuses a path that takes too long to make, or that the kernel could not name below the directory of an image.
func checkPlace(name string) error {
	if len(name) > maxPath || strings.Count(name, "/") > maxDepth {
		return invalid("entry %.80q… has more than %d bytes or %d directories in its path", name, maxPath, maxDepth)
	}
	return nil
}

func all(*tar.Header) bool { return true }

// decompress recognises the compression of an ACI by its first bytes.
func decompress(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var plain io.Reader = b
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		plain, err = gzip.NewReader(b)
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		plain, err = xz.NewReader(b)
	default:
		return plain, nil
	}
	if err != nil {
		return nil, errNotACI(err)
	}
	return plain, nil
}

func errNotACI(err error) error {
	return invalid("it is not an ACI, which is a tar, plain or packed with gzip or xz: %v", err)
}

func errTooLong() error { return invalid("it unpacks to more than %d bytes", int64(maxImage)) }

// extract unpacks the wanted entries of a tar.
func extract(ctx context.Context, r *tar.Reader, to *os.Root, left *int64, wanted func(*tar.Header) bool) error {
	for {
		hdr, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errNotACI(err)
		case ctx.Err() != nil:
			return ctx.Err()
		case !wanted(hdr):
			continue
		}
		if *left -= hdr.Size; *left < 0 { // not the bytes in the tar, of which a sparse file has fewer
			return errTooLong()
		}
		if err := extractEntry(to, hdr, r); err != nil {
			return fmt.Errorf("entry %q: %w", hdr.Name, err)
		}
	}
}

func extractEntry(root *os.Root, hdr *tar.Header, r io.Reader) error {
	if hdr.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, ok := entryName(hdr.Name)
	if !ok {
		return errNoPlace(hdr.Name)
	}
	if name == "." {
		return nil
	}
	if err := checkPlace(name); err != nil {
		return err
	}
	if name == "manifest" && hdr.Typeflag != tar.TypeReg {
		return invalid("it has to be a regular file")
	}
	if err := makeParent(root, path.Dir(name)); err != nil {
		return invalid("its directory cannot be made: %v", err)
	}
	mode := hdr.FileInfo().Mode() & modeBits
	switch hdr.Typeflag {
	case tar.TypeDir:
		return extractDir(root, name, mode, hdr)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return invalid("cannot be made: %v", err)
		}
		// Set the owner before the mode: a change of the owner removes set-id bits.
		if err := f.Chown(hdr.Uid, hdr.Gid); err != nil {
			return errors.Join(err, f.Close())
		}
		err = writeFile(f, r, mode)
		if errno := syscall.Errno(0); err != nil && !errors.As(err, &errno) {
			return errNotACI(err) // an error of the tar, not of the tree
		}
		return err
	case tar.TypeSymlink:
		if err := root.Symlink(hdr.Linkname, name); err != nil {
			return invalid("cannot be made: %v", err)
		}
		return root.Lchown(name, hdr.Uid, hdr.Gid)
	case tar.TypeLink:
		if err := root.Link(path.Clean(hdr.Linkname), name); err != nil {
			return invalid("cannot be linked: %v", err)
		}
		return nil
	}
	return invalid("a stage1 image holds files, directories and links only")
}

// makeParent makes the directory of an entry, unless an earlier entry has made it. Its mode
// does not depend on the umask, because digests cover modes.
func makeParent(root *os.Root, dir string) error {
	const mode = 0o755
	err := root.Mkdir(dir, mode)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		if err = makeParent(root, path.Dir(dir)); err == nil {
			err = root.Mkdir(dir, mode)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return root.MkdirAll(dir, mode) // fails if a file is in its place
	}
	if err != nil {
		return err
	}
	return root.Chmod(dir, mode)
}

func errNoPlace(name string) error {
	return invalid("%q: an ACI holds \"manifest\" and what is below \"rootfs\", and nothing else", name)
}

// entryName returns the clean name of an entry, and false if an ACI must not have such an
// entry. It refuses every name with "..", even if the path stays inside.
func entryName(name string) (string, bool) {
	clean := path.Clean(name)
	ok := clean == "." || clean == "manifest" || clean == "rootfs" || strings.HasPrefix(clean, "rootfs/")
	return clean, ok && !slices.Contains(strings.Split(name, "/"), "..")
}

// extractDir makes a directory. The directory may exist already, as the parent of an
// earlier entry.
func extractDir(root *os.Root, name string, mode fs.FileMode, hdr *tar.Header) error {
	if err := root.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return invalid("another entry of the same name is not a directory")
	}
	if err := root.Lchown(name, hdr.Uid, hdr.Gid); err != nil {
		return err
	}
	return root.Chmod(name, mode)
}
