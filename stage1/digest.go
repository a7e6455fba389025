package stage1

import (
	"archive/tar"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// digestPrefix and digestLen describe a digest as text: appc's image id.
const (
	digestPrefix = "sha512-"
	digestLen    = len(digestPrefix) + 2*sha512.Size
)

func digestText(h hash.Hash) string { return digestPrefix + hex.EncodeToString(h.Sum(nil)) }

// treeDigest returns the digest of an image directory: that of a tar in which
// "manifest" comes first, then everything in "rootfs" in lexical order, with
// names, types, permission bits, link targets and contents, and with neither
// times nor owners. Whoever unpacks the same files gets the same digest.
func treeDigest(dir string) (string, error) {
	h := sha512.New()
	w := tar.NewWriter(h)
	err := walkImage(dir, func(rel string, st fs.FileInfo) error { return writeEntry(w, dir, rel, st) })
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", fmt.Errorf("digest of stage1 image %s: %w", dir, err)
	}
	return digestText(h), nil
}

// walkImage visits the manifest and the rootfs of an image, in lexical order.
func walkImage(dir string, visit func(rel string, st fs.FileInfo) error) error {
	for _, top := range []string{"manifest", "rootfs"} {
		err := filepath.WalkDir(filepath.Join(dir, top), func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			st, err := d.Info()
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, p)
			if err != nil {
				return err
			}
			return visit(rel, st)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func writeEntry(w *tar.Writer, dir, rel string, st fs.FileInfo) error {
	link := ""
	if st.Mode()&fs.ModeSymlink != 0 {
		l, err := os.Readlink(filepath.Join(dir, rel))
		if err != nil {
			return err
		}
		link = l
	}
	hdr, err := tar.FileInfoHeader(st, link)
	if err != nil {
		return fmt.Errorf("%s: %w", rel, err)
	}
	// Only these; FileInfoHeader has put in what differs between copies.
	clean := &tar.Header{Typeflag: hdr.Typeflag, Name: rel, Linkname: link, Mode: hdr.Mode & 0o7777, Size: hdr.Size, Format: tar.FormatPAX}
	if err := w.WriteHeader(clean); err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, rel))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// fingerprint tells whether an image directory is still the one whose digest is
// known, without reading its files: name, inode, size, mode, and both times of
// each. A change that keeps all of these needs root and bad will.
func fingerprint(dir string) (string, error) {
	h := sha512.New()
	err := walkImage(dir, func(rel string, st fs.FileInfo) error {
		return printStat(h, rel, st)
	})
	if err != nil {
		return "", fmt.Errorf("stage1 image %s: %w", dir, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func printStat(w io.Writer, rel string, st fs.FileInfo) error {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no stat", rel)
	}
	_, err := fmt.Fprintf(w, "%q %d %d %o %d %d %d\n", rel, s.Dev, s.Ino, s.Mode, s.Size, s.Mtim.Nano(), s.Ctim.Nano())
	return err
}
