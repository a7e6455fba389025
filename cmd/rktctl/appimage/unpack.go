package appimage

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/containerd/errdefs"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
)

// limits bound the tree of an image, because a small image can unpack to any size.
type limits struct {
	bytes  int64 // of all files
	files  int64 // entries of all layers
	header int64 // bytes of names, link targets and attributes: containerd's code keeps these in memory
}

func defaultLimits() limits { return limits{bytes: 128 << 30, files: 8 << 20, header: 1 << 30} }

// maxWindow is the largest window of a layer that is packed with zstd, in bytes. A reader
// needs as much memory. zstd's command writes such a window with --ultra --long only.
const maxWindow = 128 << 20

func errTooLarge(bytes int64) error {
	return fmt.Errorf("it unpacks to more than %d bytes: %w", bytes, errdefs.ErrResourceExhausted)
}

// unpack unpacks an image's layers into an empty directory, each over those below it, and
// verifies all digests. containerd's own code applies the layers.
func (s *source) unpack(ctx context.Context, to string, left limits) error {
	for i, l := range s.layers {
		if err := l.apply(ctx, to, s.config.RootFS.DiffIDs[i], &left); err != nil {
			return fmt.Errorf("layer %s: %w", l.name, err)
		}
	}
	return nil
}

// apply unpacks a layer. diffID is the digest of the unpacked layer.
func (l *layer) apply(ctx context.Context, to string, diffID digest.Digest, left *limits) error {
	packed, err := l.open(ctx)
	if err != nil {
		return err
	}
	err = applyTar(ctx, packed, to, diffID, left)
	return errors.Join(err, packed.Close())
}

func applyTar(ctx context.Context, packed io.Reader, to string, diffID digest.Digest, left *limits) error {
	plain, _, err := unpacked(packed)
	if err != nil {
		return err
	}
	defer plain.Close()
	stream := &io.LimitedReader{R: &interruptible{ctx, plain}, N: left.bytes + 1}
	hash := digest.SHA256.Digester()
	tee := io.TeeReader(stream, hash.Hash())
	_, err = archive.Apply(ctx, to, tee, archive.WithFilter(left.count))
	if err == nil {
		_, err = io.Copy(io.Discard, tee) // bytes after the tar's end
	}
	if stream.N <= 0 {
		return errTooLarge(left.bytes)
	}
	if err != nil {
		return err
	}
	if got := hash.Digest(); got != diffID {
		return fmt.Errorf("unpacked it has the digest %s, and has to have %s: %w", got, diffID, errdefs.ErrDataLoss)
	}
	return nil
}

// interruptible is a reader that fails when its context is done: containerd's code looks at
// the context between files only.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.Reader.Read(p)
}

// count counts an entry of a layer. hdr.Size counts and not the bytes in the tar, of which a
// sparse file has fewer.
func (l *limits) count(hdr *tar.Header) (bool, error) {
	l.files--
	l.bytes -= hdr.Size
	l.header -= int64(len(hdr.Name) + len(hdr.Linkname))
	for key, value := range hdr.PAXRecords {
		l.header -= int64(len(key) + len(value))
	}
	switch {
	case l.bytes < 0:
		return false, fmt.Errorf("the image's files are longer than allowed: %w", errdefs.ErrResourceExhausted)
	case l.files < 0 || l.header < 0:
		return false, fmt.Errorf("the image has more files, or longer names and attributes, than allowed: %w", errdefs.ErrResourceExhausted)
	}
	return true, nil
}

// unpacked returns the content of a stream that may be packed with gzip or zstd, which it
// recognises by the first bytes.
func unpacked(r io.Reader) (plain io.ReadCloser, isPacked bool, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(4)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, false, err
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, false, invalid("not packed with gzip, as its first bytes say: %v", err)
		}
		return z, true, nil
	case bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], []byte{0x2a, 0x4d, 0x18}):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, false, invalid("not packed with zstd, as its first bytes say: %v", err)
		}
		return z.IOReadCloser(), true, nil
	}
	return io.NopCloser(b), false, nil
}
