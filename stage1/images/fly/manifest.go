package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// podManifest is what is read of a pod's manifest.
type podManifest struct {
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
	Exec        []string `json:"exec"`
	User        string   `json:"user"`
	Group       string   `json:"group"`
	Groups      []int    `json:"supplementaryGIDs"`
	Directory   string   `json:"workingDirectory"`
	Environment []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"environment"`
	Isolators []struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"`
	} `json:"isolators"`
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

// readPod reads the manifest of the pod in the working directory, which has one app.
func readPod() (*podManifest, *runtimeApp, error) {
	text, err := os.ReadFile("pod")
	if err != nil {
		return nil, nil, err
	}
	var m podManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, nil, fmt.Errorf("manifest of the pod: %w", err)
	}
	if len(m.Apps) != 1 {
		return nil, nil, fmt.Errorf("the pod has %d apps, and can have one", len(m.Apps))
	}
	a := &m.Apps[0]
	if a.App == nil {
		if a.App, err = imageApp(a.Name); err != nil {
			return nil, nil, err
		}
	}
	if len(a.App.Exec) == 0 {
		return nil, nil, fmt.Errorf("app %s has nothing to execute", a.Name)
	}
	return &m, a, nil
}

// imageApp is what an image says of its app. It counts where the pod says nothing.
func imageApp(name string) (*app, error) {
	text, err := os.ReadFile(filepath.Join(stage2, name, "manifest"))
	if err != nil {
		return nil, err
	}
	var m struct {
		App *app `json:"app"`
	}
	if err := json.Unmarshal(text, &m); err != nil || m.App == nil {
		return nil, fmt.Errorf("manifest of the image of app %s: no app (%v)", name, err)
	}
	return m.App, nil
}

// volume returns what a mount shows.
func (m *podManifest) volume(of mount) (*volume, error) {
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

// env returns the app's environment.
func (a *app) env() []string {
	env := make([]string, 0, len(a.Environment)+1)
	for _, v := range a.Environment {
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// isolator returns the value of an isolator, or nothing.
func (a *app) isolator(name string) string {
	for _, i := range a.Isolators {
		if i.Name == name {
			return strings.Trim(string(i.Value), `"`)
		}
	}
	return ""
}
