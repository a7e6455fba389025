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
	ReadOnly  *bool  `json:"readOnly"`  // nil: as the mount point says
	Recursive *bool  `json:"recursive"` // nil: true
	Mode      string `json:"mode"`
	UID       int    `json:"uid"`
	GID       int    `json:"gid"`
}

// Shown is a volume in an app.
type Shown struct {
	Volume   *Volume
	Path     string // in the app
	ReadOnly bool
}

// Shown returns the volumes that an app sees: those of its mounts, and one for each mount
// point without a mount. The latter is the pod's volume with the mount point's name, or an
// empty volume for this app alone.
func (m *Manifest) Shown(a *RuntimeApp) ([]Shown, error) {
	var all []Shown
	there := map[string]bool{}
	for _, of := range a.Mounts {
		v := of.Own
		if v == nil {
			v = m.volume(of.Volume)
		}
		if v == nil {
			return nil, fmt.Errorf("there is no volume %s for %s", of.Volume, of.Path)
		}
		readOnly := false
		for _, p := range a.App.MountPoints {
			readOnly = readOnly || p.Name == of.Volume && p.ReadOnly
		}
		there[of.Path] = true
		all = append(all, v.shown(of.Path, readOnly))
	}
	for _, p := range a.App.MountPoints {
		if there[p.Path] {
			continue
		}
		v := m.volume(p.Name)
		if v == nil {
			v = &Volume{Name: a.Name + "-" + p.Name, Kind: empty}
		}
		all = append(all, v.shown(p.Path, p.ReadOnly))
	}
	for _, s := range all {
		if k := s.Volume.Kind; k != empty && k != "host" {
			return nil, fmt.Errorf("volume %s is of the kind %q, which is neither host nor empty", s.Volume.Name, k)
		}
	}
	return all, nil
}

func (m *Manifest) volume(name string) *Volume {
	for i := range m.Volumes {
		if m.Volumes[i].Name == name {
			return &m.Volumes[i]
		}
	}
	return nil
}

func (v *Volume) shown(path string, readOnly bool) Shown {
	if v.ReadOnly != nil {
		readOnly = *v.ReadOnly
	}
	return Shown{v, path, readOnly}
}

// empty is the kind of a volume that is an empty directory at first.
const empty = "empty"

// Deep reports whether the volume includes the mounts below its source.
func (v *Volume) Deep() bool { return v.Recursive == nil || *v.Recursive }

// Path returns the volume's path. The path of a volume of the host is absolute, others are
// relative to the pod's directory. Path makes the directory of an empty volume if it is
// missing.
func (v *Volume) Path() (string, error) {
	if v.Kind != empty {
		return v.Source, nil
	}
	if !filepath.IsLocal(v.Name) || filepath.Base(v.Name) != v.Name || v.Name == "." {
		return "", fmt.Errorf("volume %q: that cannot be the name of a directory", v.Name)
	}
	dir := filepath.Join("sharedVolumes", v.Name)
	return dir, v.make(dir)
}

func (v *Volume) make(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, os.ErrExist) { // another app uses the volume, too
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
