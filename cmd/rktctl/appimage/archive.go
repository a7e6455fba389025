package appimage

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
)

// Files of an archive. An archive of Docker's has manifest.json; Docker has also written the
// files of an OCI image layout since version 25.
const (
	indexFile  = "index.json"
	dockerFile = "manifest.json"
)

// maxEntries is the largest number of files in an archive.
const maxEntries = 1 << 16

// maxNames is how many bytes the names of files in an archive, and the targets of their links, have together at most. They stay in
// memory.
const maxNames = 16 << 20

// tarball is a tar with an OCI image layout or with images of `docker save`. It implements
// image.Blobs. Its files are read from the tar at their places.
type tarball struct {
	file  *os.File
	files map[string]span
	links map[string]string
}

type span struct{ at, size int64 }

var _ image.Blobs = (*tarball)(nil)

// findInFile finds the image in an archive or an ACI.
func findInFile(ctx context.Context, file, name string, store *Store) (_ *source, err error) {
	isACI, err := isACI(file, store)
	if err != nil {
		return nil, err
	}
	if isACI {
		if name != "" {
			return nil, invalid("it is an ACI, which is one image and has no others with names")
		}
		return findACI(ctx, file)
	}
	a, err := openArchive(file, store)
	if err != nil {
		return nil, err
	}
	s, err := a.find(ctx, name)
	if err != nil {
		return nil, errors.Join(err, a.file.Close())
	}
	s.closer = a.file.Close
	return s, nil
}

// isACI reports whether the first file of a tar that has a name of an ACI or of an archive
// has one of an ACI.
func isACI(file string, store *Store) (bool, error) {
	f, err := image.OpenACI(file)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r := tar.NewReader(io.LimitReader(f, store.limits.bytes))
	for range maxEntries {
		hdr, err := r.Next()
		if err != nil {
			return false, nil // openArchive says why
		}
		top, _, _ := strings.Cut(strings.TrimPrefix(path.Clean("/"+hdr.Name), "/"), "/")
		switch {
		case top == "manifest" || top == "rootfs":
			return true, nil
		case hdr.Typeflag == tar.TypeReg:
			return false, nil
		}
	}
	return false, nil
}

// openArchive finds the places of an archive's files. It first unpacks a packed archive into
// a file without a name.
func openArchive(file string, store *Store) (_ *tarball, err error) {
	a := &tarball{files: map[string]span{}, links: map[string]string{}}
	if a.file, err = openPlain(file, store); err != nil {
		return nil, err
	}
	r := tar.NewReader(a.file)
	names := 0
	for n := 0; ; n++ {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) && n > 0 {
			return a, nil
		}
		if err == nil && n == maxEntries {
			err = fmt.Errorf("more than %d files", maxEntries)
		}
		if err == nil {
			if names += len(hdr.Name) + len(hdr.Linkname); names > maxNames {
				err = fmt.Errorf("the names of its files have more than %d bytes", maxNames)
			}
		}
		if err == nil {
			err = a.add(hdr)
		}
		if err != nil {
			return nil, errors.Join(invalid("not an archive of an OCI image, of docker save or an ACI: %v", err), a.file.Close())
		}
	}
}

// openPlain opens a tar, which may be packed.
func openPlain(file string, store *Store) (*os.File, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	plain, isPacked, err := unpacked(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if !isPacked {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	defer f.Close()
	defer plain.Close()
	tmp, err := store.unnamed()
	if err != nil {
		return nil, err
	}
	left := store.limits.bytes
	n, err := io.Copy(tmp, io.LimitReader(plain, left+1))
	if err == nil && n > left {
		err = errTooLarge(left)
	}
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, tmp.Close())
	}
	return tmp, nil
}

// add records the place of a file. Of several files of one name the first counts, so that a
// blob that was read once is read again from the same place.
func (a *tarball) add(hdr *tar.Header) error {
	name := path.Clean(hdr.Name)
	switch hdr.Typeflag {
	case tar.TypeReg:
		at, err := a.file.Seek(0, io.SeekCurrent) // the reader of a tar reads no further than headers
		if err != nil {
			return err
		}
		if _, ok := a.files[name]; !ok {
			a.files[name] = span{at, hdr.Size}
		}
	case tar.TypeSymlink: // docker save, of a layer that two images have
		a.links[name] = path.Join(path.Dir(name), hdr.Linkname)
	case tar.TypeLink:
		a.links[name] = path.Clean(hdr.Linkname)
	}
	return nil
}

// open opens a file of the archive.
func (a *tarball) open(name string) (io.ReadCloser, int64, error) {
	at, ok := a.files[name]
	if target := a.links[name]; !ok && target != "" {
		at, ok = a.files[target]
	}
	if !ok {
		return nil, 0, fmt.Errorf("there is no %s in the archive: %w", name, fs.ErrNotExist)
	}
	return io.NopCloser(io.NewSectionReader(a.file, at.at, at.size)), at.size, nil
}

// Open implements image.Blobs.
func (a *tarball) Open(_ context.Context, d image.Descriptor) (io.ReadCloser, error) {
	r, _, err := a.open("blobs/" + strings.Replace(d.Digest, ":", "/", 1))
	return r, err
}

func (a *tarball) find(ctx context.Context, name string) (*source, error) {
	r, _, err := a.open(indexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return a.findDocker(name)
	}
	if err != nil {
		return nil, err
	}
	index, err := image.ReadIndex(r)
	if err != nil {
		return nil, err
	}
	d, err := choose(index, name)
	if err != nil {
		return nil, err
	}
	return findOCI(ctx, a, d)
}

// dockerImage is an entry of manifest.json.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// findDocker finds an image that an old docker save has written. Its digest is that of the
// configuration, which is Docker's image id. The configuration has the digests of layers.
func (a *tarball) findDocker(name string) (*source, error) {
	text, err := a.document(dockerFile)
	if err != nil {
		return nil, fmt.Errorf("it has neither %s, as an OCI image has, nor that of docker save: %w", indexFile, err)
	}
	var all []dockerImage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, invalid("%s: %v", dockerFile, err)
	}
	var names []string
	var chosen []dockerImage
	for _, i := range all {
		names = append(names, i.RepoTags...)
		if name == "" || slices.Contains(i.RepoTags, name) {
			chosen = append(chosen, i)
		}
	}
	switch {
	case len(chosen) > 1 && name == "":
		return nil, invalid("there are several images in it: name one of them after an @, such as PATH@NAME: %s", strings.Join(names, ", "))
	case len(chosen) == 0:
		return nil, fmt.Errorf("there is no image %s in it, only %s: %w", name, strings.Join(names, ", "), errdefs.ErrNotFound)
	}
	i := chosen[0]
	if text, err = a.document(path.Clean(i.Config)); err != nil {
		return nil, err
	}
	s := &source{digest: digest.FromBytes(text).String()}
	if digits := strings.TrimSuffix(path.Base(i.Config), ".json"); "sha256:"+digits != s.digest {
		return nil, fmt.Errorf("the configuration %s has the digest %s: %w", i.Config, s.digest, errdefs.ErrDataLoss)
	}
	if err := json.Unmarshal(text, &s.config); err != nil {
		return nil, invalid("configuration %s: %v", i.Config, err)
	}
	for _, l := range i.Layers {
		s.layers = append(s.layers, layer{l, func(context.Context) (io.ReadCloser, error) {
			r, _, err := a.open(path.Clean(l))
			return r, err
		}})
	}
	return s, s.check()
}

// document reads a small file of the archive.
func (a *tarball) document(name string) ([]byte, error) {
	r, size, err := a.open(name)
	if err != nil {
		return nil, err
	}
	if size > maxDocument {
		return nil, invalid("%s is %d bytes long, and may have %d", name, size, maxDocument)
	}
	return io.ReadAll(r)
}
