// Package datadir makes directories of the data directory with modes that keep the
// host's users away from images and pods. Inside an image's tree every file has the mode
// that the image gives it, with set-id bits, so only the directories above decide which
// users reach the programs in it. docs/layout.md lists the modes.
package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Mode is the mode of the data directory itself: the mapped users of a user namespace
// pass through it on their way to a holder's root, and do not need to list it.
const Mode fs.FileMode = 0o711

// Check returns an error unless a path can be that of a data directory. A shim and its server have different working
// directories, and JSON documents have paths.
func Check(path string) error {
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("%s is not an absolute path", path)
	case !utf8.ValidString(path):
		return fmt.Errorf("%q is not UTF-8", path)
	}
	return nil
}

// Make makes a directory with these permissions. If the directory exists, Make changes
// its permissions: earlier releases made directories with 0755, and a umask takes bits
// from new ones. The set-group-ID bit, which rkt's packages give the data directory,
// stays.
func Make(dir string, perm fs.FileMode) error {
	if err := os.MkdirAll(dir, perm); err != nil {
		return err
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm() == perm {
		return err
	}
	if Shared(st.Mode()) {
		return fmt.Errorf("%s is shared with other users of the host (mode %v): name a directory that is used for nothing else", dir, st.Mode())
	}
	err = os.Chmod(dir, st.Mode()&^fs.ModePerm|perm)
	if errors.Is(err, unix.EROFS) {
		return nil // no pod can be made on a read-only file system, but `delete` has to work
	}
	return err
}

// Shared reports whether a directory with this mode belongs to everybody on the host: every user
// can write to it, or it has the sticky bit.
func Shared(mode fs.FileMode) bool { return mode&fs.ModeSticky != 0 || mode.Perm()&0o002 != 0 }
