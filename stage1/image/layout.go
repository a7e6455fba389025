package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Files of an OCI image layout.
const (
	layoutMark  = "oci-layout"
	layoutIndex = "index.json"
)

// Layout is a directory with an OCI image layout. It implements Blobs.
type Layout string

var _ Blobs = Layout("")

// IsLayout reports whether a directory is an OCI image layout.
func IsLayout(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, layoutMark))
	return err == nil
}

// Open opens a blob of the layout.
func (l Layout) Open(_ context.Context, d Descriptor) (io.ReadCloser, error) {
	algorithm, digits, _ := strings.Cut(d.Digest, ":")
	return openRegular(filepath.Join(string(l), "blobs", filepath.Base(algorithm), filepath.Base(digits)))
}

// openRegular opens a file and refuses one that is not regular, such as a fifo, whose open
// would wait for a writer.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = invalid("%s: not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Index returns the layout's images.
func (l Layout) Index() ([]Descriptor, error) {
	f, err := openRegular(filepath.Join(string(l), layoutIndex))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadIndex(f)
}

// ReadIndex reads the file index.json of a layout.
func ReadIndex(r io.Reader) ([]Descriptor, error) {
	var index document
	if err := json.NewDecoder(io.LimitReader(r, maxDocument)).Decode(&index); err != nil {
		return nil, invalid("%s: %v", layoutIndex, err)
	}
	return index.Manifests, nil
}

// top returns the layout's image for this platform.
func (l Layout) top() (Descriptor, error) {
	all, err := l.Index()
	if err != nil {
		return Descriptor{}, err
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return ofThisPlatform(all)
}

// fill unpacks the image of a layout, and returns the digest of the directory.
func (l Layout) fill(ctx context.Context, to string) (string, error) {
	top, err := l.top()
	if err != nil {
		return "", err
	}
	layers, err := layersOf(ctx, l, top)
	if err != nil {
		return "", err
	}
	return fillLayers(ctx, l, layers, to)
}

// isArchive reports whether a file is a tar of an OCI image layout. It decides by the first
// entry that belongs to a layout or to an ACI. Other faults of the file are reported when
// it is unpacked.
func isArchive(file string) (bool, error) {
	f, r, err := openArchive(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for {
		hdr, err := r.Next()
		if err != nil {
			return false, nil
		}
		if isLayoutFile(hdr) {
			return true, nil
		}
		if name, ofACI := entryName(hdr.Name); ofACI && name != "." {
			return false, nil
		}
	}
}

func openArchive(file string) (*os.File, *tar.Reader, error) {
	f, plain, err := openPacked(file, unzip)
	if err != nil {
		return nil, nil, err
	}
	return f, tar.NewReader(&io.LimitedReader{R: plain, N: maxImage}), nil
}

// isLayoutFile reports whether an entry of a tar belongs to an OCI image layout.
func isLayoutFile(hdr *tar.Header) bool {
	name := path.Clean(hdr.Name)
	isBlob, err := path.Match("blobs/*/*", name)
	return hdr.Typeflag == tar.TypeReg && err == nil && (isBlob || name == layoutMark || name == layoutIndex)
}

// fillArchive unpacks the image of an archive. It first unpacks the layout into a directory
// beside the tree.
func fillArchive(ctx context.Context, file, to string) (digest string, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(to), tmpPrefix)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := extractLayout(ctx, file, dir); err != nil {
		return "", invalid("not an archive of an OCI image: %v", err)
	}
	return Layout(dir).fill(ctx, to)
}

// extractLayout unpacks the files of an archive that belong to the layout.
func extractLayout(ctx context.Context, file, to string) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	f, r, err := openArchive(file)
	if err != nil {
		return err
	}
	defer f.Close()
	left := int64(maxImage)
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && isLayoutFile(hdr) {
			if left -= hdr.Size; left < 0 { // not the bytes in the tar, of which a sparse file has fewer
				return errTooLong()
			}
			err = extractBlob(root, path.Clean(hdr.Name), r)
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}
	}
}

func extractBlob(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("entry %q: %w", name, err)
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
