package signature

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/rkt/containerd-shim-rkt-v1/config"
)

// Keyring is a directory of public keys.
type Keyring string

// maxKeys is the largest size of a file of keys, in bytes.
const maxKeys = 1 << 20

// keysFor returns the keys that may sign an image of a name. It returns an error if a key
// cannot be read, because the operator would not notice a missing key.
func (k Keyring) keysFor(name string) (openpgp.EntityList, error) {
	dirs := []string{string(k), filepath.Join(string(k), "root.d")}
	prefixes, err := os.ReadDir(filepath.Join(string(k), "prefix.d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, p := range prefixes {
		prefix := strings.ReplaceAll(p.Name(), ",", "/")
		if name == prefix || strings.HasPrefix(name, prefix+"/") {
			dirs = append(dirs, filepath.Join(string(k), "prefix.d", p.Name()))
		}
	}
	var all openpgp.EntityList
	for n, dir := range dirs {
		keys, err := keysIn(dir)
		if err != nil && (n == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return nil, err
		}
		all = append(all, keys...)
	}
	return all, nil
}

// Check returns an error if any key in the directory cannot be read, or if there are no
// keys.
func (k Keyring) Check() error {
	below, err := filepath.Glob(filepath.Join(string(k), "prefix.d", "*"))
	if err != nil {
		return err
	}
	n := 0
	for i, dir := range append([]string{string(k), filepath.Join(string(k), "root.d")}, below...) {
		keys, err := keysIn(dir)
		if err != nil && (i != 1 || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
		n += len(keys)
	}
	if n == 0 {
		return fmt.Errorf("there is no key in %s, so that no ACI can be used", string(k))
	}
	return nil
}

// keysIn reads the files of one directory.
func keysIn(dir string) (openpgp.EntityList, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(dir)
	if err == nil {
		err = config.CheckTrusted(dir, st)
	}
	if err != nil {
		return nil, err
	}
	var all openpgp.EntityList
	for _, e := range entries {
		if e.IsDir() || e.Name()[0] == '.' {
			continue
		}
		keys, err := readKeys(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
	return all, nil
}

// readKeys reads a file of keys, armored or not. An empty file has no keys; rkt withdraws
// trust from one of its own keys with such a file.
func readKeys(file string) (openpgp.EntityList, error) {
	text, err := config.ReadTrusted(file, maxKeys)
	if err != nil || len(text) == 0 {
		return nil, err
	}
	read := openpgp.ReadKeyRing
	if bytes.Contains(text, []byte("-----BEGIN PGP")) {
		read = openpgp.ReadArmoredKeyRing
	}
	keys, err := read(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s holds no public key of OpenPGP: %w", file, err)
	}
	return keys, nil
}
