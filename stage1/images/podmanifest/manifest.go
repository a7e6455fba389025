package podmanifest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Stage2 is the directory of a pod's apps, in the pod's directory.
const Stage2 = "stage1/rootfs/opt/stage2"

// Manifest has the parts of a pod's manifest that stage1s need.
type Manifest struct {
	Apps    []RuntimeApp `json:"apps"`
	Volumes []Volume     `json:"volumes"`
}

// RuntimeApp is an app of the pod.
type RuntimeApp struct {
	Name     string  `json:"name"`
	App      *App    `json:"app"` // nil: the image's manifest has it
	ReadOnly bool    `json:"readOnlyRootFS"`
	Mounts   []Mount `json:"mounts"`
}

// App describes a program and its execution.
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

// Variable is a variable of an app's environment.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Isolator is a restriction of an app. The form of its value depends on its name.
type Isolator struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

// MountPoint is a path in an app at which its image wants a volume.
type MountPoint struct {
	Name     string `json:"name"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
}

// Mount is a volume in an app.
type Mount struct {
	Volume string  `json:"volume"`
	Path   string  `json:"path"`
	Own    *Volume `json:"appVolume"` // takes precedence over the pod's volume of that name
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

// Named returns an app, with the program of its image if the pod's manifest has none.
func (m *Manifest) Named(name string) (*RuntimeApp, error) {
	for i := range m.Apps {
		if a := &m.Apps[i]; a.Name == name {
			return a, a.complete()
		}
	}
	return nil, fmt.Errorf("there is no app %s in the manifest of the pod", name)
}

// complete reads the app's program from its image's manifest, unless the pod's
// manifest has it.
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
