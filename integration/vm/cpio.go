package main

import (
	"fmt"
	"io"
	"io/fs"
)

// cpio writes an archive in the format of an initramfs.
type cpio struct {
	w     io.Writer
	inode int
	err   error
}

func (c *cpio) dir(name string) { c.entry(name, 0o040000|0o755, nil) }

func (c *cpio) file(name string, mode fs.FileMode, content []byte) {
	c.entry(name, 0o100000|uint32(mode.Perm()), content)
}

// end must be called once, after the last entry. It returns the first error.
func (c *cpio) end() error {
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}

func (c *cpio) entry(name string, mode uint32, content []byte) {
	c.inode++
	links := 1
	// inode, mode, uid, gid, nlink, mtime, size, device, rdevice, length of the name, checksum
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	c.write([]byte(header + name + "\x00"))
	c.pad(len(header) + len(name) + 1)
	c.write(content)
	c.pad(len(content))
}

func (c *cpio) pad(written int) { c.write(make([]byte, (4-written%4)%4)) }

func (c *cpio) write(b []byte) {
	if c.err == nil {
		_, c.err = c.w.Write(b)
	}
}
