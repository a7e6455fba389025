package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
)

const recordVersion = 1

// Names of the records.
const (
	podFile = "pod.json" // of a pod
	appFile = "app.json" // of an app
)

// podState says how far a pod's directory is. Everything else about the pod is known by its
// server.
type podState string

const (
	podCreating podState = "creating" // what is there is removed by the next Create, or by Remove
	podReady    podState = "ready"
	podRemoving podState = "removing" // as creating
	podDamaged  podState = "damaged"  // is never written: pod.json cannot be read; Remove removes the pod
)

// podRecord is local/UUID/pod.json.
type podRecord struct {
	Version    int       `json:"version"`
	State      podState  `json:"state"`
	Created    time.Time `json:"created"`
	Stage1     string    `json:"stage1,omitempty"` // that the client has asked for
	Address    string    `json:"address,omitempty"`
	Holder     int       `json:"holder,omitempty"` // its pid
	Cgroup     string    `json:"cgroup"`
	Network    string    `json:"network"`
	Injectable bool      `json:"injectable"`

	EndsWithApps bool `json:"endsWithApps,omitempty"`
}

// damagedPod stands for a record that was lost with the power, or that a person has damaged. It has what
// the removal of the pod needs.
func (s *Store) damagedPod(uuid string) podRecord {
	return podRecord{
		Version: recordVersion, State: podDamaged, Address: addressOf(uuid), Cgroup: filepath.Join(s.CgroupParent, uuid),
		Network: NetworkNone, Injectable: true,
	}
}

// appRecord is local/UUID/apps/NAME/app.json. In place of a record that cannot be read it is empty except for its
// version: no command was interrupted, and the server and the other records tell the app's state.
type appRecord struct {
	Version int       `json:"version"`
	Key     string    `json:"key"`   // random: distinguishes apps of the same name
	State   State     `json:"state"` // the intent of the last command: preparing, prepared, stopping or deleting
	Created time.Time `json:"created"`
	Started time.Time `json:"started,omitzero"` // written after the start
	// StopSignal is the name of the signal that the image asks for, or empty.
	StopSignal string `json:"stopSignal,omitempty"`
}

// readRecord reads a record of this version.
func readRecord(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var version struct {
		Version int `json:"version"`
	}
	err = json.Unmarshal(text, &version)
	if err == nil && version.Version != recordVersion {
		err = fmt.Errorf("version %d, want %d", version.Version, recordVersion)
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, err, errdefs.ErrDataLoss)
	}
	return nil
}

// writeRecord replaces a file, so that a reader sees the old or the new content.
func writeRecord(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(tmp, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
