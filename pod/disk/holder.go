package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/hold"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// holderDir is the directory of the holders' root file systems in the data
// directory. Unlike a pod directory, the mapped users of user namespaces can
// reach it.
const holderDir = "holder"

// HolderRoot returns the root file system of holders: their program, and the
// directories that a stage1 mounts on. It is made once and never changed,
// because its name is a hash of the program. Therefore it is flushed to the disk before it has that name.
func (s *Store) HolderRoot() (string, error) {
	program, err := hold.Program()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(program)
	dir := filepath.Join(s.dir, holderDir, hex.EncodeToString(sum[:hashLen]))
	if err := datadir.Make(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made) // has no effect after the rename
	if err := hold.Fill(made, program); err != nil {
		return "", err
	}
	if err := flush(filepath.Join(made, "hold")); err != nil {
		return "", err
	}
	err = os.Rename(made, dir)
	if errors.Is(err, fs.ErrExist) {
		err = nil // another shim has made the same directory
	}
	return dir, err
}

// flush writes a file to the disk, so that it is whole after a power loss.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// WriteHolder makes the OCI bundle of a pod's holder in the directory dir. A
// stage1 that can run an app can run the holder from it. WriteHolder returns
// config.json.
func WriteHolder(dir, rootfs string, s *abi.Sandbox, label, cgroupsPath string) (*spec.App, error) {
	text, err := plainjson.Encode(hold.Spec(rootfs, s, label, cgroupsPath))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		return nil, err
	}
	return spec.Read[specs.Spec](text)
}
