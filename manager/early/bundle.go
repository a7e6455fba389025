package early

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// socketDirLink and addressFile are names in the bundle. containerd and its other
// shims use the same ones.
const (
	socketDirLink = "s"
	addressFile   = "address"
)

// BundleDir returns the path of the container's bundle.
func (f *Flags) BundleDir() (string, error) {
	if filepath.IsAbs(f.Bundle) {
		return filepath.Clean(f.Bundle), nil
	}
	dir, err := os.Getwd()
	return filepath.Join(dir, f.Bundle), err
}

// IsCalledFrom reports whether the bundle is the working directory, as it is when
// containerd executes this program. If the bundle was made again since then, the
// server's container of that id is a new one and must not be deleted.
func IsCalledFrom(bundle string) bool {
	cwd, err := os.Stat(".")
	if err != nil {
		return false
	}
	named, err := os.Stat(bundle)
	return err == nil && os.SameFile(cwd, named)
}

// RecordSocket writes the address of the socket into the bundle. `delete` needs it
// if containerd ended before it had stored the answer, and older releases of
// containerd reconnect by the file `address`.
func (r *Request) RecordSocket(bundle, socket string) error {
	if r.SocketDir != "" {
		link := filepath.Join(bundle, socketDirLink)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(filepath.Clean(r.SocketDir), link); err != nil {
			return err
		}
	}
	if r.Form == FormProtobuf {
		return nil
	}
	tmp := filepath.Join(bundle, "."+addressFile)
	if err := os.WriteFile(tmp, []byte(AddressPrefix+socket), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(bundle, addressFile))
}

// SocketOf returns the path on which the container's server listens or has listened. It
// reads the address that containerd has stored or, for older releases, that `start` has
// stored. Without a stored address it computes the path as `start` does.
func SocketOf(bundle string, f *Flags) string {
	if path := StoredSocket(bundle); path != "" {
		return path
	}
	dir, err := os.Readlink(filepath.Join(bundle, socketDirLink))
	if err != nil {
		dir = DefaultSocketDir
	}
	// `start` fails for a config.json that cannot be read, so there is no group then.
	annotations, _ := readAnnotations(filepath.Join(bundle, "config.json"))
	group, err := GroupOf(annotations, f.ID)
	if err != nil {
		group = f.ID
	}
	path, err := SocketPath(dir, f.Address, f.Namespace, group)
	if err != nil {
		return ""
	}
	return path
}

// StoredSocket returns the path of the socket that a container's bundle names, or an empty
// string.
func StoredSocket(bundle string) string {
	if text, err := proc.ReadFile(filepath.Join(bundle, "bootstrap.json")); err == nil {
		var stored struct {
			Address string `json:"address"`
		}
		if json.Unmarshal(text, &stored) == nil {
			return PathOf(stored.Address)
		}
	}
	text, err := proc.ReadFile(filepath.Join(bundle, addressFile))
	if err != nil {
		return ""
	}
	return PathOf(string(text))
}
