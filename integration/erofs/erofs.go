// Package erofs writes images of the file system erofs for tests. Debian 12's mkfs.erofs makes them as well, but
// it is no package that other tests need, and an image of this package differs from another one only in its
// files: it has neither compression nor times nor extended attributes.
//
// All files are laid out flat and plain: an inode of 32 bytes, and data that begin at a block. The layout is that
// of fs/erofs/erofs_fs.h of Linux 6.1.
package erofs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

const (
	blockBits = 12
	blockSize = 1 << blockBits
	magic     = 0xe0f5e1e2
	superAt   = 1024
	superSize = 128
	metaBlock = 1 // where the inodes begin
	inodeSize = 32
)

// Types of files in directories.
const (
	typeFile = 1
	typeDir  = 2
	typeLink = 7
)

// inode is a file of the image. Its number is its place among the inodes.
type inode struct {
	path     string // on the host
	stat     *syscall.Stat_t
	kind     uint8
	links    uint16
	size     uint32
	data     []byte // of a directory or link
	block    uint32
	entries  []entry // of a directory
	parentOf uint64  // the number of a directory's parent
}

type entry struct {
	name   string
	number uint64
	kind   uint8
}

// Write writes an image with the files of a directory: regular files, directories and symbolic links.
func Write(image, dir string) error {
	var all []*inode
	if _, err := collect(&all, dir, 0); err != nil {
		return err
	}
	block := uint32(metaBlock) + blocks(uint32(len(all)*inodeSize))
	for number, i := range all {
		if i.kind == typeDir {
			i.data = directory(i, uint64(number))
			i.size = uint32(len(i.data))
		}
		i.block = block
		block += blocks(i.size)
	}
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(int64(block) * blockSize); err != nil {
		return err
	}
	if _, err := f.WriteAt(super(len(all), block), superAt); err != nil {
		return err
	}
	for number, i := range all {
		if _, err := f.WriteAt(i.encode(number), metaBlock*blockSize+int64(number)*inodeSize); err != nil {
			return err
		}
		content := i.data
		if i.kind == typeFile {
			if content, err = os.ReadFile(i.path); err != nil {
				return err
			}
		}
		if _, err := f.WriteAt(content, int64(i.block)*blockSize); err != nil {
			return err
		}
	}
	return f.Close()
}

// collect appends the file at a path and all that is below it, and returns its number.
func collect(all *[]*inode, path string, parent uint64) (uint64, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid > 0xffff || stat.Gid > 0xffff || stat.Size > 1<<31 {
		return 0, fmt.Errorf("%s: an inode of 32 bytes cannot describe it", path)
	}
	number := uint64(len(*all))
	i := &inode{path: path, stat: stat, links: 1, size: uint32(stat.Size), parentOf: parent}
	*all = append(*all, i)
	switch info.Mode().Type() {
	case 0:
		i.kind = typeFile
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return 0, err
		}
		i.kind, i.data = typeLink, []byte(target)
	case fs.ModeDir:
		i.kind, i.links = typeDir, 2
		below, err := os.ReadDir(path)
		if err != nil {
			return 0, err
		}
		for _, e := range below {
			n, err := collect(all, filepath.Join(path, e.Name()), number)
			if err != nil {
				return 0, err
			}
			kind := (*all)[n].kind
			if kind == typeDir {
				i.links++
			}
			i.entries = append(i.entries, entry{e.Name(), n, kind})
		}
	default:
		return 0, fmt.Errorf("%s: it is neither file, directory nor link", path)
	}
	return number, nil
}

// directory returns the data of a directory. Each block has some entries of 12 bytes and then their names. The
// kernel searches by halves, so the names are in the order of their bytes, as are those of the blocks.
func directory(i *inode, number uint64) []byte {
	entries := append([]entry{{".", number, typeDir}, {"..", i.parentOf, typeDir}}, i.entries...)
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	var all []byte
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && size+12+len(entries[n].name) <= blockSize {
			size += 12 + len(entries[n].name)
			n++
		}
		if rest := len(all) % blockSize; rest > 0 {
			all = append(all, make([]byte, blockSize-rest)...)
		}
		at := n * 12
		var names []byte
		for _, e := range entries[:n] {
			all = binary.LittleEndian.AppendUint64(all, e.number)
			all = binary.LittleEndian.AppendUint16(all, uint16(at+len(names)))
			all = append(all, e.kind, 0)
			names = append(names, e.name...)
		}
		all = append(all, names...)
		entries = entries[n:]
	}
	return all
}

// encode returns the inode in its compact form, with the layout "flat and plain".
func (i *inode) encode(number int) []byte {
	var b [inodeSize]byte
	le := binary.LittleEndian
	le.PutUint16(b[4:], uint16(i.stat.Mode))
	le.PutUint16(b[6:], i.links)
	le.PutUint32(b[8:], i.size)
	le.PutUint32(b[16:], i.block)
	le.PutUint32(b[20:], uint32(number))
	le.PutUint16(b[24:], uint16(i.stat.Uid))
	le.PutUint16(b[26:], uint16(i.stat.Gid))
	return b[:]
}

func super(inodes int, blocks uint32) []byte {
	var b [superSize]byte
	le := binary.LittleEndian
	le.PutUint32(b[0:], magic)
	b[12] = blockBits
	le.PutUint64(b[16:], uint64(inodes)) // the root's number is 0
	le.PutUint32(b[36:], blocks)
	le.PutUint32(b[40:], metaBlock)
	return b[:]
}

func blocks(bytes uint32) uint32 { return (bytes + blockSize - 1) / blockSize }
