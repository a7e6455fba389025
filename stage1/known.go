package stage1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// settled is how old the last change of a source must be for its digest to be
// remembered. A file that is changed twice within the resolution of its file
// system's clock looks the same after both.
const settled = time.Second

// known is what is remembered of a source of an image: the digest that it had
// when it looked like this.
type known struct {
	Version     int    `json:"version"` // 1
	Path        string `json:"path"`
	Fingerprint string `json:"fingerprint"`
	Digest      string `json:"digest"`
}

// record returns the file that remembers a source.
func (s *Store) record(source string) string {
	sum := sha256.Sum256([]byte(source))
	return filepath.Join(s.dir, knownDir, hex.EncodeToString(sum[:16])+".json")
}

// remembered returns the digest of a source that has not changed since its tree
// was rendered. A record that cannot be read is none.
func (s *Store) remembered(source, print string) (digest string, ok bool) {
	var k known
	text, err := os.ReadFile(s.record(source))
	if err != nil || json.Unmarshal(text, &k) != nil {
		return "", false
	}
	if k.Version != 1 || k.Path != source || k.Fingerprint != print || !isDigest(k.Digest) {
		return "", false
	}
	return k.Digest, s.has(k.Digest)
}

// remember records the digest of a source, by rename. The caller has the lock.
func (s *Store) remember(source, print, digest string) error {
	text, err := json.Marshal(known{Version: 1, Path: source, Fingerprint: print, Digest: digest})
	if err != nil {
		return err
	}
	tmp := filepath.Join(s.dir, tmpPrefix+"known")
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, s.record(source)); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// fingerprint is what a source looks like from outside: path, inode, mode, size
// and both times of each of its files. As long as it stays the same, nothing is
// read to know the digest. changed is when the last of them changed.
func fingerprint(source string) (print string, changed time.Time, err error) {
	f := fingerprinter{hash: sha256.New()}
	st, err := os.Stat(source)
	switch {
	case err != nil:
	case st.IsDir() && isLayout(source):
		// It names all else by digests.
		name := filepath.Join(source, layoutIndex)
		if st, err = os.Stat(name); err == nil {
			err = f.add(layoutIndex, st)
		}
	case st.IsDir():
		err = walkImage(source, f.add)
	default:
		err = f.add("", st)
	}
	return hex.EncodeToString(f.hash.Sum(nil)), f.changed, err
}

type fingerprinter struct {
	hash    hash.Hash
	changed time.Time
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
