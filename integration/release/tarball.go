package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// writeTarball writes a tarball of the files below the prefix.
func writeTarball(r *release, dir string) error {
	return create(r.path(dir, ".tar.gz"), func(w io.Writer) error {
		zip, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		archive := tar.NewWriter(zip)
		for _, e := range r.entries {
			if err := r.archive(archive, &e); err != nil {
				return fmt.Errorf("%s: %w", e.path, err)
			}
		}
		return errors.Join(archive.Close(), zip.Close())
	})
}

// archive writes an entry. Names of owners are left out, because tar would prefer them.
func (r *release) archive(w *tar.Writer, e *entry) error {
	h := &tar.Header{Name: e.path, Mode: int64(e.mode), ModTime: r.time, Format: tar.FormatUSTAR}
	switch e.kind {
	case "dir":
		h.Typeflag, h.Name = tar.TypeDir, e.path+"/"
		return w.WriteHeader(h)
	case "link":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.value, 0o777
		return w.WriteHeader(h)
	}
	content, err := e.content()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
