package older

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// stage2 is where the apps of a pod are.
const stage2 = "stage1/rootfs/opt/stage2"

// manifest is what is read of a pod's manifest.
type manifest struct {
	Apps    []runtimeApp `json:"apps"`
	Volumes []volume     `json:"volumes"`
}

type runtimeApp struct {
	Name     string  `json:"name"`
	App      *app    `json:"app"`
	ReadOnly bool    `json:"readOnlyRootFS"`
	Mounts   []mount `json:"mounts"`
}

type app struct {
	Exec        []string   `json:"exec"`
	User        string     `json:"user"`
	Group       string     `json:"group"`
	Groups      []uint32   `json:"supplementaryGIDs"`
	Directory   string     `json:"workingDirectory"`
	Environment []variable `json:"environment"`
	Isolators   []isolator `json:"isolators"`
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type isolator struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

type volume struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Source    string `json:"source"`
	ReadOnly  bool   `json:"readOnly"`
	Recursive *bool  `json:"recursive"`
	Mode      string `json:"mode"`
	UID       int    `json:"uid"`
	GID       int    `json:"gid"`
}

type mount struct {
	Volume string  `json:"volume"`
	Path   string  `json:"path"`
	Own    *volume `json:"appVolume"`
}

// Apps returns the names of the pod's apps.
func Apps() ([]string, error) {
	m, err := readManifest()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range m.Apps {
		names = append(names, a.Name)
	}
	return names, nil
}

func readManifest() (*manifest, error) {
	text, err := os.ReadFile("pod")
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("manifest of the pod: %w", err)
	}
	return m, nil
}

// app finds an app, with what its image says of it where the pod says nothing.
func (m *manifest) app(name string) (*runtimeApp, error) {
	for i := range m.Apps {
		a := &m.Apps[i]
		if a.Name != name {
			continue
		}
		if a.App == nil {
			text, err := os.ReadFile(filepath.Join(stage2, name, "manifest"))
			if err != nil {
				return nil, err
			}
			image := struct {
				App *app `json:"app"`
			}{}
			if err := json.Unmarshal(text, &image); err != nil {
				return nil, fmt.Errorf("manifest of the image of app %s: %w", name, err)
			}
			a.App = image.App
		}
		if a.App == nil || len(a.App.Exec) == 0 {
			return nil, fmt.Errorf("app %s has nothing to execute", name)
		}
		return a, nil
	}
	return nil, fmt.Errorf("there is no app %s in the manifest of the pod", name)
}

// volume returns what a mount shows.
func (m *manifest) volume(of mount) (*volume, error) {
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
