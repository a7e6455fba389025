package image

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
	"strings"
)

// digestPrefix and digestLen describe the text of a digest, which has the form of
// appc's image ids.
const (
	digestPrefix = "sha512-"
	digestLen    = len(digestPrefix) + 2*sha512.Size
)

func digestText(h hash.Hash) string { return digestPrefix + hex.EncodeToString(h.Sum(nil)) }

func isDigest(d string) bool {
	hexa, ok := strings.CutPrefix(d, digestPrefix)
	if !ok || len(d) != digestLen || strings.ToLower(hexa) != hexa {
		return false
	}
	_, err := hex.DecodeString(hexa)
	return err == nil
}

// modeBits are the bits of a file's mode that are kept.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// treeDigest returns the digest of an image directory: that of a tar with "manifest",
// then "rootfs", and then everything in rootfs, with the entries of each directory in
// the order of their bytes. An entry has a name, a type, mode bits, a link target and
// contents. Times are left out, the owner is always 0:0, and hard links count as
// separate files. So every copy of an image has the same digest.
func treeDigest(dir string) (string, error) { return hashTree(dir, false) }

// treeSum returns a digest of a rendered tree that includes the owners of files.
func treeSum(dir string) (string, error) { return hashTree(dir, true) }

func hashTree(dir string, owners bool) (string, error) {
	h := sha512.New()
	w := tar.NewWriter(h)
	err := walkImage(dir, func(rel string, st fs.FileInfo) error { return writeEntry(w, dir, rel, st, owners) })
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", fmt.Errorf("digest: %w", err)
	}
	return digestText(h), nil
}

// walkImage visits the manifest and the rootfs of an image in the order of the
// digest. Anything else in the directory is not part of the image.
func walkImage(dir string, visit func(rel string, st fs.FileInfo) error) error {
	for _, top := range [...]string{"manifest", "rootfs"} {
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

func writeEntry(w *tar.Writer, dir, rel string, st fs.FileInfo, owners bool) error {
	// Copy only the fields that are part of the digest: tar.FileInfoHeader also sets
	// the owner and the times.
	plain, err := tar.FileInfoHeader(st, "")
	if err != nil {
		return fmt.Errorf("%s: %w", rel, err)
	}
	hdr := &tar.Header{Typeflag: plain.Typeflag, Name: rel, Mode: plain.Mode & 0o7777, Size: plain.Size, Format: tar.FormatPAX}
	if owners {
		hdr.Uid, hdr.Gid = plain.Uid, plain.Gid
	}
	path := filepath.Join(dir, rel)
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		hdr.Mode = 0o777
		if hdr.Linkname, err = os.Readlink(path); err != nil {
			return err
		}
	case st.IsDir():
		hdr.Name += "/"
	case !st.Mode().IsRegular():
		return errNotAFile(rel)
	}
	if err := w.WriteHeader(hdr); err != nil || !st.Mode().IsRegular() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

func errNotAFile(name string) error {
	return invalid("%s: a stage1 image holds files, directories and links only", name)
}
