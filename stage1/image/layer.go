package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Prefixes of names in a layer that remove files of the layers below.
const (
	whiteout       = ".wh."
	opaqueWhiteout = ".wh..wh..opq"
)

// applyLayer unpacks a layer into a directory that has the layers below it. It reads the
// layer twice: first it removes files of the layers below, and then it adds the layer's
// own files, so that the removals do not affect these. budget is how many bytes all
// layers together may still unpack to.
func applyLayer(ctx context.Context, blobs Blobs, d Descriptor, to string, budget *int64) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	twice := *budget
	err = walkLayer(ctx, blobs, d, &twice, func(name string, _ *tar.Header, _ io.Reader) error {
		return applyWhiteout(root, name)
	})
	if err != nil {
		return err
	}
	return walkLayer(ctx, blobs, d, budget, func(name string, hdr *tar.Header, r io.Reader) error {
		return applyEntry(root, name, hdr, r)
	})
}

// walkLayer visits those entries of a layer that belong to the image, and verifies the
// whole layer.
func walkLayer(ctx context.Context, blobs Blobs, d Descriptor, budget *int64, visit func(name string, hdr *tar.Header, r io.Reader) error) error {
	b, err := OpenBlob(ctx, blobs, d)
	if err != nil {
		return err
	}
	err = walkTar(ctx, b, budget, visit)
	return errors.Join(err, b.Close())
}

func walkTar(ctx context.Context, b io.Reader, budget *int64, visit func(name string, hdr *tar.Header, r io.Reader) error) error {
	plain, err := unzip(b)
	if err != nil {
		return err
	}
	limited := &io.LimitedReader{R: plain, N: *budget}
	r := tar.NewReader(limited)
	for {
		hdr, err := r.Next()
		if err == nil {
			*budget -= hdr.Size // not the bytes in the tar, of which a sparse file has fewer
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case limited.N <= 0 || *budget < 0:
			return invalid("the image unpacks to more than %d bytes", int64(maxImage))
		case err != nil:
			return invalid("not a tar: %v", err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := checkPlace(hdr.Name); err != nil {
			return err
		}
		if slices.Contains(strings.Split(hdr.Name, "/"), "..") {
			return invalid("entry %q leads out of the image", hdr.Name)
		}
		// Skip other files of the OCI image, which are not part of the stage1 image.
		name, isOurs := entryName(strings.TrimPrefix(path.Clean(hdr.Name), "/"))
		isWhiteout := strings.HasPrefix(path.Base(name), whiteout)
		if name == "." || !isOurs && !isWhiteout || hdr.Typeflag == tar.TypeXGlobalHeader {
			continue
		}
		if err := visit(name, hdr, r); err != nil {
			return fmt.Errorf("entry %q: %w", hdr.Name, err)
		}
	}
}

// unzip recognises the compression of a layer by its first bytes.
func unzip(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(4)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		plain, err := gzip.NewReader(b)
		if err != nil {
			return nil, invalid("not a tar packed with gzip: %v", err)
		}
		return plain, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, invalid("it is packed with zstd, which is not supported: build the image with layers that are packed with gzip, or not at all")
	}
	return b, nil
}

// applyWhiteout removes the files of the layers below that a whiteout names.
func applyWhiteout(root *os.Root, name string) error {
	dir, base := path.Split(name)
	hidden, ok := strings.CutPrefix(base, whiteout)
	if !ok {
		return nil
	}
	if base != opaqueWhiteout {
		return root.RemoveAll(path.Join(dir, hidden))
	}
	entries, err := fs.ReadDir(root.FS(), path.Clean(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := root.RemoveAll(path.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// applyEntry makes an entry. It replaces an existing file with that name.
func applyEntry(root *os.Root, name string, hdr *tar.Header, r io.Reader) error {
	if strings.HasPrefix(path.Base(name), whiteout) {
		return nil
	}
	if hdr.Typeflag == tar.TypeLink {
		hdr.Linkname = strings.TrimPrefix(hdr.Linkname, "/")
	}
	st, err := root.Lstat(name)
	if err == nil && (!st.IsDir() || hdr.Typeflag != tar.TypeDir) {
		err = root.RemoveAll(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	hdr.Name, hdr.Uid, hdr.Gid = name, 0, 0
	return extractEntry(root, hdr, r)
}
