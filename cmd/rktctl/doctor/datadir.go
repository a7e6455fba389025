package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// leastFree is the free room of the data directory below which pods may soon fail, in bytes,
// and leastInodes in files.
const (
	leastFree   = 64 << 20
	leastInodes = 1024
)

func (e *examination) dataDir() {
	const area = "data directory"
	st, err := os.Stat(e.DataDir)
	if errors.Is(err, fs.ErrNotExist) {
		e.ok(area, "%s does not exist; the first pod makes it", e.DataDir)
		e.trustedParents(filepath.Dir(e.DataDir))
		return
	}
	if err != nil || !st.IsDir() {
		e.found(Error, area, "name a directory by RKT_DATA_DIR in containerd's environment", "%s cannot be used as a directory: %v", e.DataDir, err)
		return
	}
	before := len(e.findings)
	if st.Mode()&fs.ModeSticky != 0 {
		e.found(Error, area, "name a directory that is used for nothing else by RKT_DATA_DIR", "%s is shared with other users (mode %v): pods fail", e.DataDir, st.Mode())
	}
	e.trusted(area, e.DataDir, st)
	e.trustedParents(filepath.Dir(e.DataDir))
	for name, most := range map[string]fs.FileMode{"pods": 0o750, "trees": 0o700, "failed": 0o700} {
		path := filepath.Join(e.DataDir, name)
		if st, err := os.Stat(path); err == nil && st.Mode().Perm()&^most != 0 {
			e.found(Error, area, fmt.Sprintf("chmod %#o %s", most, path), "%s has the mode %#o: users of the host can reach set-id programs of images", path, st.Mode().Perm())
		}
	}
	e.room(area)
	if len(e.findings) == before {
		e.ok(area, "%s", e.DataDir)
	}
}

// room checks the file system of the data directory.
func (e *examination) room(area string) {
	var fsys unix.Statfs_t
	if err := unix.Statfs(e.DataDir, &fsys); err != nil {
		e.found(Error, area, "", "%s: %v", e.DataDir, err)
		return
	}
	switch flags := int(fsys.Flags); {
	case flags&unix.ST_RDONLY != 0:
		e.found(Error, area, "mount -o remount,rw, or see dmesg for the reason", "%s is on a read-only file system: pods fail", e.DataDir)
	case flags&unix.ST_NOEXEC != 0:
		e.found(Error, area, "mount its file system without noexec, or name another directory by RKT_DATA_DIR", "%s is on a file system that is mounted noexec: no entrypoint can be executed", e.DataDir)
	}
	if free := fsys.Bavail * uint64(fsys.Bsize); free < leastFree {
		e.found(Error, area, "rktctl stage1 gc, or free room there", "%s has %d MiB left", e.DataDir, free>>20)
	}
	if fsys.Files > 0 && fsys.Ffree < leastInodes {
		e.found(Error, area, "remove files there", "%s has %d inodes left", e.DataDir, fsys.Ffree)
	}
}

// trusted checks that only root can write a file or directory.
func (e *examination) trusted(area, path string, st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case ok && s.Uid != 0:
		e.found(Error, area, "chown root "+path, "%s belongs to user %d, who can become root by it", path, s.Uid)
	case st.Mode().Perm()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0:
		e.found(Error, area, "chmod go-w "+path, "%s has the mode %#o: others than root can write it and become root by it", path, st.Mode().Perm())
	default:
		return true
	}
	return false
}

// trustedParents checks the directories above a path.
func (e *examination) trustedParents(dir string) {
	for ; ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil {
			e.trusted("permissions", dir, st)
		}
		if dir == "/" || dir == "." {
			return
		}
	}
}
