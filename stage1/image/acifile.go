package image

import (
	"archive/tar"
	"context"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"

	"github.com/appc/spec/pkg/acirenderer"
	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	"github.com/containerd/errdefs"
)

// aci is a file with an ACI.
type aci struct {
	path     string
	manifest *schema.ImageManifest

	// Set by read.
	id     string            // appc's image id
	packed string            // digest of the file
	size   int64             // of the file
	plain  int64             // of the tar in it
	links  map[string]string // hard links
}

// openACI opens the tar in an ACI.
func openACI(file string) (*os.File, io.Reader, error) { return openPacked(file, decompress) }

// OpenACI opens the tar in an ACI, which may be packed with gzip or xz. The ACI may be of an
// app as well as of a stage1. The tar may be of any length.
func OpenACI(file string) (io.ReadCloser, error) {
	f, plain, err := openACI(file)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, f}, nil
}

// openPacked opens the contents of a file that may be compressed.
func openPacked(file string, unpacked func(io.Reader) (io.Reader, error)) (*os.File, io.Reader, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, nil, err
	}
	plain, err := unpacked(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, plain, nil
}

// peekACI reads an ACI up to its manifest.
func peekACI(file string) (*aci, error) {
	f, plain, err := openACI(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := tar.NewReader(io.LimitReader(plain, maxImage))
	for {
		hdr, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, invalid("there is no manifest in it; docs/stage1-abi.md, section 1, describes an image")
		case err != nil:
			return nil, errNotACI(err)
		case path.Clean(hdr.Name) != "manifest" || hdr.Typeflag != tar.TypeReg:
			continue
		}
		text, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
		if err != nil {
			return nil, errNotACI(err)
		}
		a := &aci{path: file}
		if a.manifest, err = UnmarshalManifest(text); err != nil {
			return nil, invalid("manifest%s: not an appc ImageManifest: %v", position(text, err), err)
		}
		return a, nil
	}
}

// isWhole reports whether the ACI's tree consists of exactly the ACI's files, because the
// ACI has neither dependencies nor a pathWhitelist.
func (a *aci) isWhole() bool {
	return len(a.manifest.Dependencies) == 0 && len(a.manifest.PathWhitelist) == 0
}

// matches reports whether an ACI has this name and all these labels, and is for this
// machine.
func (a *aci) matches(name types.ACIdentifier, labels types.Labels) bool {
	if a.manifest.Name != name || !ofThisMachine(a.manifest.Labels) {
		return false
	}
	return !slices.ContainsFunc(labels, func(l types.Label) bool {
		value, ok := a.manifest.Labels.Get(l.Name.String())
		return !ok || value != l.Value
	})
}

// ofThisMachine reports whether the labels os and arch of an ACI, if it has them, name this
// machine.
func ofThisMachine(labels types.Labels) bool {
	system, machine, err := types.ToAppcOSArch(runtime.GOOS, runtime.GOARCH, "")
	if err != nil {
		return true // appc has no name for this machine
	}
	for name, mine := range map[string]string{"os": system, "arch": machine} {
		if value, ok := labels.Get(name); ok && value != mine {
			return false
		}
	}
	return true
}

// read reads an ACI to its end and sets its image id, its lengths and its hard links.
func (a *aci) read(ctx context.Context) error {
	if a.id != "" {
		return nil
	}
	f, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	h, packed := sha512.New(), sha512.New()
	source := io.TeeReader(f, packed)
	plain, err := decompress(source)
	if err != nil {
		return err
	}
	all := &io.LimitedReader{R: plain, N: maxImage}
	tee := io.TeeReader(all, h)
	links := map[string]string{}
	err = acirenderer.Walk(tar.NewReader(tee), func(hdr *tar.Header) error {
		name, ok := entryName(hdr.Name)
		if !ok && hdr.Typeflag != tar.TypeXGlobalHeader {
			return errNoPlace(hdr.Name)
		}
		if err := checkPlace(name); err != nil {
			return err
		}
		if hdr.Typeflag == tar.TypeLink {
			links[name] = path.Clean(hdr.Linkname)
		}
		return ctx.Err()
	})
	if err == nil {
		_, err = io.Copy(io.Discard, tee)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, source) // bytes after the tar's end
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errNotACI(err)
	case all.N <= 0:
		return errTooLong()
	}
	a.id, a.packed, a.size, a.plain, a.links = digestText(h), digestText(packed), st.Size(), maxImage-all.N, links
	return nil
}

// extract unpacks some files of an ACI, and returns an error if the ACI has changed since read.
func (a *aci) extract(ctx context.Context, files map[string]struct{}, to *os.Root, left *int64) error {
	instead := a.relinked(files)
	id, err := unpack(ctx, a.path, to, left, func(hdr *tar.Header) bool { return wanted(hdr, files, instead) })
	if err != nil {
		return err
	}
	for target, link := range instead {
		if _, err := to.Lstat(link); err != nil {
			return invalid("entry %q is a hard link to %q, which is not a file of this image", link, target)
		}
	}
	if id != a.id {
		return fmt.Errorf("it was changed while it was read: %w", errdefs.ErrUnavailable)
	}
	return nil
}

// relinked returns, for each unwanted file with a wanted hard link, the name of that link.
// The link then becomes the file.
func (a *aci) relinked(files map[string]struct{}) map[string]string {
	instead := map[string]string{}
	for link, target := range a.links {
		_, isWanted := files[link]
		if _, isThere := files[target]; isThere || !isWanted {
			continue
		}
		if other, ok := instead[target]; !ok || link < other {
			instead[target] = link
		}
	}
	return instead
}

// wanted reports whether an entry has to be unpacked, and returns the name for it.
func wanted(hdr *tar.Header, files map[string]struct{}, instead map[string]string) bool {
	name := path.Clean(hdr.Name)
	_, ok := files[name]
	if link := instead[name]; link != "" && hdr.Typeflag == tar.TypeReg {
		hdr.Name = link
		return true
	}
	if !ok || hdr.Typeflag != tar.TypeLink {
		return ok
	}
	if link := instead[path.Clean(hdr.Linkname)]; link != "" {
		hdr.Linkname = link
		return link != name
	}
	return true
}
