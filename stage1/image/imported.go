package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// importedDir is the directory of the records of imports. The store keeps an imported tree
// even if nothing else uses it.
const importedDir = "imported"

// Imported is the record of an import.
type Imported struct {
	Version int    `json:"version"` // 1
	Digest  string `json:"digest"`  // of the tree
	Name    string `json:"name"`    // of the stage1, as its manifest has it
	Ref     string `json:"ref"`     // the source of the last import
	// Signer is the signer of an ACI whose signature was verified, otherwise empty.
	Signer string `json:"signer,omitempty"`
}

// rememberImport records an import so that the record survives a crash of the machine. The
// caller has the store's lock.
func (s *Store) rememberImport(i *Image, ref, signer string) error {
	dir := filepath.Join(s.dir, importedDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp := filepath.Join(s.dir, tmpPrefix+"imported")
	err := writeSynced(tmp, os.O_TRUNC, Imported{Version: 1, Digest: i.Digest(), Name: i.Name(), Ref: ref, Signer: signer})
	if err == nil {
		err = os.Rename(tmp, filepath.Join(dir, i.Digest()+".json"))
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return syncDir(dir)
}

// ImportPath brings an image from a path into the store, and records the import. The image
// may have any form that Image accepts. If the rules demand signatures, ImportPath verifies
// the signature of an ACI, even if the ACI was rendered before.
func (s *Store) ImportPath(ctx context.Context, path string) (_ *Image, err error) {
	defer prefix(&err, "import stage1 image %s", path)
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	digest, signer, err := s.acis.signerOf(ctx, path)
	if err != nil {
		return nil, err
	}
	free := s.With(ACIs{Directories: s.acis.Directories})
	i, err := free.image(ctx, path, digest)
	if err != nil {
		return nil, err
	}
	unlock, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return i, s.rememberImport(i, path, signer)
}

// Imports lists the records of all imports.
func (s *Store) Imports() ([]Imported, error) {
	files, err := filepath.Glob(filepath.Join(s.dir, importedDir, digestPrefix+"*.json"))
	if err != nil {
		return nil, err
	}
	var all []Imported
	for _, f := range files {
		var i Imported
		if err := readRecord(f, &i); err != nil {
			return nil, fmt.Errorf("imported stage1: %s: %w", f, err)
		}
		all = append(all, i)
	}
	return all, nil
}

// importOf returns the record of a tree's import, if it was imported.
func (s *Store) importOf(digest string) (i Imported, ok bool) {
	ok = s.dir != "" && readRecord(filepath.Join(s.dir, importedDir, digest+".json"), &i) == nil
	return i, ok
}

// Signer returns the signer whose signature was verified when an image was imported, or
// "".
func (s *Store) Signer(i *Image) string {
	imported, _ := s.importOf(i.digest)
	return imported.Signer
}

// Signed returns an error if the image is an ACI, ACIs must be signed, and no import has
// verified its signature.
func (s *Store) Signed(i *Image) error {
	if !s.acis.Signed || !i.isACI {
		return nil
	}
	return s.allowed(i.digest)
}

// allowed is Signed for an ACI that was not rendered yet.
func (s *Store) allowed(digest string) error {
	if i, ok := s.importOf(digest); ok && i.Signer != "" {
		return nil
	}
	return fmt.Errorf("the configuration demands that ACIs are signed, and the signature of this one, %s, was not verified: run rktctl stage1 import with its path: %w", digest, errdefs.ErrPermissionDenied)
}

// Rendered returns the image of a digest if its tree is in the store, because it was imported
// or rendered before. Otherwise the error is errdefs.ErrNotFound, or errdefs.ErrDataLoss if
// the tree was changed.
func (s *Store) Rendered(digest string) (*Image, error) {
	if !isDigest(digest) {
		return nil, invalid("the digest %.80q is not \"sha512-\" and 128 digits of 0-9 and a-f", digest)
	}
	i, err := s.hold(digest)
	if errors.Is(err, errGone) {
		return nil, fmt.Errorf("stage1 image %s is not in the tree store: %w", digest, errdefs.ErrNotFound)
	}
	if err == nil {
		i, err = s.ifSigned(i)
	}
	if err != nil {
		return nil, fmt.Errorf("stage1 image %s: %w", digest, err)
	}
	return i, nil
}

// ifSigned returns an image for which Signed returns nil, and closes any other.
func (s *Store) ifSigned(i *Image) (*Image, error) {
	if err := s.Signed(i); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}
