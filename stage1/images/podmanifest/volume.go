package podmanifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Volume is a part of the host, or an empty directory that apps of the pod share.
type Volume struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Source    string `json:"source"`
	ReadOnly  bool   `json:"readOnly"`
	Recursive *bool  `json:"recursive"` // nil is true
	Mode      string `json:"mode"`
	UID       int    `json:"uid"`
	GID       int    `json:"gid"`
}

// Volume returns what a mount shows.
func (m *Manifest) Volume(of Mount) (*Volume, error) {
	if of.Own != nil {
		return of.Own, nil
	}
	for i := range m.Volumes {
		if m.Volumes[i].Name == of.Volume {
			return &m.Volumes[i], nil
		}
	}
	return nil, fmt.Errorf("there is no volume %s for %s", of.Volume, of.Path)
}

// Deep tells whether what is mounted below the volume's source comes along.
func (v *Volume) Deep() bool { return v.Recursive == nil || *v.Recursive }

// Path returns where the volume is, from the pod's directory unless it is a part of the
// host. An empty one is made if it is not there.
func (v *Volume) Path() (string, error) {
	if v.Kind != "empty" {
		return v.Source, nil
	}
	dir := filepath.Join("sharedVolumes", v.Name)
	return dir, v.make(dir)
}

func (v *Volume) make(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) { // another app's, too
		return nil
	}
	if err != nil {
		return err
	}
	mode := uint64(0o755)
	if v.Mode != "" {
		if mode, err = strconv.ParseUint(v.Mode, 8, 32); err != nil {
			return fmt.Errorf("mode: %w", err)
		}
	}
	return errors.Join(os.Chown(dir, v.UID, v.GID), unix.Chmod(dir, uint32(mode)))
}
