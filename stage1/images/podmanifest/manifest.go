package podmanifest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Stage2 is where the apps of a pod are, from the pod's directory.
const Stage2 = "stage1/rootfs/opt/stage2"

// Manifest is what is read of a pod's manifest.
type Manifest struct {
	Apps    []RuntimeApp `json:"apps"`
	Volumes []Volume     `json:"volumes"`
}

// RuntimeApp is an app of the pod.
type RuntimeApp struct {
	Name     string  `json:"name"`
	App      *App    `json:"app"` // nil: what its image says
	ReadOnly bool    `json:"readOnlyRootFS"`
	Mounts   []Mount `json:"mounts"`
}

// App is what is to be executed, and how.
type App struct {
	Exec        []string     `json:"exec"`
	User        string       `json:"user"`
	Group       string       `json:"group"`
	Groups      []uint32     `json:"supplementaryGIDs"`
	Directory   string       `json:"workingDirectory"`
	Environment []Variable   `json:"environment"`
	MountPoints []MountPoint `json:"mountPoints"`
	Isolators   []Isolator   `json:"isolators"`
}

// Variable is one of an app's environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Isolator is a restriction of an app. What its value is depends on its name.
type Isolator struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// MountPoint is where an app's image wants a volume.
type MountPoint struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
}

// Mount is a volume in an app.
type Mount struct {
	Volume string  `json:"volume"`
	Path   string  `json:"path"`
	Own    *Volume `json:"appVolume"` // wins over the pod's of that name
}

// Read reads the manifest of the pod in the working directory.
func Read() (*Manifest, error) {
	text, err := os.ReadFile("pod")
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("manifest of the pod: %w", err)
	}
	return m, nil
}

// Named finds an app, with what its image says of it where the pod says nothing.
func (m *Manifest) Named(name string) (*RuntimeApp, error) {
	for i := range m.Apps {
		if a := &m.Apps[i]; a.Name == name {
			return a, a.complete()
		}
	}
	return nil, fmt.Errorf("there is no app %s in the manifest of the pod", name)
}

// complete takes from the app's image what the pod does not say.
func (a *RuntimeApp) complete() error {
	if a.App == nil {
		text, err := os.ReadFile(filepath.Join(Stage2, a.Name, "manifest"))
		if err != nil {
			return err
		}
		image := struct {
			App *App `json:"app"`
		}{}
		if err := json.Unmarshal(text, &image); err != nil {
			return fmt.Errorf("manifest of the image of app %s: %w", a.Name, err)
		}
		a.App = image.App
	}
	if a.App == nil || len(a.App.Exec) == 0 {
		return fmt.Errorf("app %s has nothing to execute", a.Name)
	}
	return nil
}
