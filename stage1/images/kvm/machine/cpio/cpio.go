// Package cpio writes archives in the format of an initramfs (newc). The kernel unpacks several
// archives one after the other if each begins at a multiple of four bytes, as those of this package
// do when they follow each other.
package cpio

import (
	"fmt"
	"io"
	"io/fs"
)

// Writer writes an archive of files and directories of root's. The first error is kept for End.
type Writer struct {
	to    io.Writer
	inode int
	err   error
}

// NewWriter returns a writer of an archive.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Dir writes an entry for a directory.
func (w *Writer) Dir(name string) { w.entry(name, 0o040755, 0, 0, nil) }

// File writes an entry for a file with size bytes of content.
func (w *Writer) File(name string, mode fs.FileMode, size int64, content io.Reader) {
	w.entry(name, 0o100000|uint32(mode.Perm()), 0, size, content)
}

// unmapped is the last id that the kernel has, which user namespaces do not map.
const unmapped = 1<<32 - 2

// Program writes an entry for a program that every user may execute. Only root of the first user namespace may
// read it: root of another one that maps user 0 is not its owner, either.
func (w *Writer) Program(name string, size int64, content io.Reader) {
	w.entry(name, 0o100711, unmapped, size, content)
}

// End must be called once, after the last entry. It returns the first error.
func (w *Writer) End() error {
	w.entry("TRAILER!!!", 0, 0, 0, nil)
	return w.err
}

func (w *Writer) entry(name string, mode, owner uint32, size int64, content io.Reader) {
	w.inode++
	if size < 0 || size > 1<<32-1 {
		w.fail(fmt.Errorf("%s: a cpio archive has no room for %d bytes", name, size))
		return
	}
	// inode, mode, uid, gid, nlink, mtime, size, device, rdevice, length of the name, checksum
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		w.inode, mode, owner, owner, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	w.write([]byte(header))
	w.pad(int64(len(header)))
	if size > 0 && w.err == nil {
		if n, err := io.CopyN(w.to, content, size); err != nil {
			w.fail(fmt.Errorf("%s: %d of %d bytes: %w", name, n, size, err))
		}
	}
	w.pad(size)
}

func (w *Writer) pad(written int64) { w.write(make([]byte, -written&3)) }

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(b)
	}
}

func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}
