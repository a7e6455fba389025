package image

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// settled is how old the last change of a source must be before the source's digest is
// recorded. If a file is changed twice within the resolution of its file system's clock,
// both versions have the same times.
const settled = time.Second

// known is the record of a source: the digest that it had with this fingerprint.
type known struct {
	Version     int    `json:"version"` // 1
	Path        string `json:"path"`
	Fingerprint string `json:"fingerprint"`
	Digest      string `json:"digest"`
	// Dirs are the directories that were searched for the ACI's dependencies. The
	// fingerprint covers the ACIs there.
	Dirs []string `json:"dirs,omitempty"`
}

// record returns the path of a source's record.
func (s *Store) record(source string) string {
	sum := sha256.Sum256([]byte(source))
	return filepath.Join(s.dir, knownDir, hex.EncodeToString(sum[:16])+".json")
}

// remembered returns the digest of a source that has not changed since its tree
// was rendered. It ignores a record that it cannot read.
func (s *Store) remembered(source string) (digest string, ok bool) {
	k, ok := readKnown(s.record(source))
	if !ok || k.Path != source || k.Dirs != nil && !slices.Equal(k.Dirs, s.acis.searched(source)) || !k.isCurrent() {
		return "", false
	}
	return k.Digest, true
}

func readKnown(file string) (k known, ok bool) {
	err := readRecord(file, &k)
	return k, err == nil && k.Version == 1 && isDigest(k.Digest)
}

// isCurrent reports whether the source has an unchanged fingerprint.
func (k *known) isCurrent() bool {
	print, _, err := fingerprint(k.Path, k.Dirs...)
	return err == nil && print == k.Fingerprint
}

// remember records the digest of a source, by rename. The caller has the store's lock.
func (s *Store) remember(source, print, digest string, dirs []string) error {
	return replace(s.record(source), known{Version: 1, Path: source, Fingerprint: print, Digest: digest, Dirs: dirs})
}

// fingerprint returns a hash of the attributes of a source: path, inode, mode, size and
// both times of each of its files, and of the ACIs in the directories of its dependencies.
// If the fingerprint is unchanged, so is the digest, and no file has to be read. changed
// is the time of the last change of any of the files.
func fingerprint(source string, dirs ...string) (print string, changed time.Time, err error) {
	f := fingerprinter{hash: sha256.New()}
	err = f.addSource(source)
	for _, dir := range dirs {
		if err == nil {
			err = f.addACIs(dir)
		}
	}
	return hex.EncodeToString(f.hash.Sum(nil)), f.changed, err
}

type fingerprinter struct {
	hash    hash.Hash
	changed time.Time
}

func (f *fingerprinter) addSource(source string) error {
	st, err := os.Stat(source)
	switch {
	case err != nil:
	case st.IsDir() && IsLayout(source):
		// The index of a layout names all other files by their digests.
		name := filepath.Join(source, layoutIndex)
		if st, err = os.Stat(name); err == nil {
			err = f.add(layoutIndex, st)
		}
	case st.IsDir():
		err = walkImage(source, f.add)
	default:
		err = f.add("", st)
	}
	return err
}

func (f *fingerprinter) addACIs(dir string) error {
	files, err := acisIn(dir)
	for _, file := range files {
		st, statErr := os.Stat(file)
		if statErr == nil {
			statErr = f.add(file, st)
		}
		err = errors.Join(err, statErr)
	}
	return err
}

func (f *fingerprinter) add(rel string, st fs.FileInfo) error {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: no inode", rel)
	}
	if c := time.Unix(s.Ctim.Unix()); c.After(f.changed) {
		f.changed = c
	}
	_, err := fmt.Fprintf(f.hash, "%q %d %d %o %d %d %d\n", rel, s.Dev, s.Ino, s.Mode, s.Size, s.Mtim.Nano(), s.Ctim.Nano())
	return err
}
