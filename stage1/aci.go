package stage1

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/ulikunitz/xz"
)

// maxImage bounds what an ACI may unpack to, in bytes.
const maxImage = 8 << 30

// archive returns the digest of an ACI whose tree is in the store. It is appc's
// image id: that of the uncompressed tar. A file that was seen before, by its
// inode, size and times, is not read again.
func (s *Store) archive(ctx context.Context, file string) (string, error) {
	print, err := fileFingerprint(file)
	if err != nil {
		return "", err
	}
	record := s.record(file)
	if k, ok := readKnown(record); ok && k.Fingerprint == print && s.has(k.Digest) {
		return k.Digest, nil
	}
	digest, err := s.render(ctx, func(tmp string) (string, error) { return unpack(file, tmp) })
	if err != nil {
		return "", fmt.Errorf("stage1 image %s: %w", file, err)
	}
	return digest, writeKnown(record, known{Version: 1, Path: file, Fingerprint: print, Digest: digest})
}

// unpack extracts an ACI and returns its digest.
func unpack(file, to string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	plain, err := decompress(f)
	if err != nil {
		return "", err
	}
	h := sha512.New()
	r := io.TeeReader(io.LimitReader(plain, maxImage), h)
	if err := extract(tar.NewReader(r), to); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, r); err != nil { // what follows the end marker counts
		return "", err
	}
	return digestPrefix + hex.EncodeToString(h.Sum(nil)), nil
}

// decompress finds out by the first bytes what an ACI is packed with.
func decompress(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(b)
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")):
		return xz.NewReader(b)
	}
	return b, nil
}

// extract unpacks a tar. Nothing in it can reach outside of the directory.
func extract(r *tar.Reader, to string) error {
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("not an ACI (a tar, plain, gzip or xz): %v: %w", err, errdefs.ErrInvalidArgument)
		}
		if err := extractEntry(root, hdr, r); err != nil {
			return fmt.Errorf("%s: %w", hdr.Name, err)
		}
	}
}

func extractEntry(root *os.Root, hdr *tar.Header, r io.Reader) error {
	name := path.Clean(hdr.Name)
	if name == "." {
		return nil
	}
	if !filepath.IsLocal(name) || name != "manifest" && name != "rootfs" && !strings.HasPrefix(name, "rootfs/") {
		return fmt.Errorf("an ACI holds \"manifest\" and \"rootfs\" only: %w", errdefs.ErrInvalidArgument)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := hdr.FileInfo().Mode().Perm()
	switch hdr.Typeflag {
	case tar.TypeDir:
		if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return root.Chmod(name, mode)
	case tar.TypeReg:
		f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		return fill(f, r, mode)
	case tar.TypeSymlink:
		return root.Symlink(hdr.Linkname, name)
	case tar.TypeLink:
		return root.Link(path.Clean(hdr.Linkname), name)
	}
	return fmt.Errorf("entry of type %q: a stage1 image holds files, directories and links: %w", hdr.Typeflag, errdefs.ErrInvalidArgument)
}

// fileFingerprint is fingerprint for a single file.
func fileFingerprint(file string) (string, error) {
	st, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	h := sha512.New()
	if err := printStat(h, "", st); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func readKnown(file string) (known, bool) {
	var k known
	text, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(text, &k) != nil {
		return known{}, false
	}
	return k, isDigest(k.Digest)
}

func writeKnown(file string, k known) error {
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return replaceFile(file, text)
}
