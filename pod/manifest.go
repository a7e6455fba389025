package pod

import (
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The part of appc's manifests that stage 0 writes. They are spelled out here
// because the schema package of appc/spec costs every shim a third of a megabyte
// of private memory; a test holds the two together.
type podManifest struct {
	Version     string         `json:"acVersion"`
	Kind        string         `json:"acKind"`
	Apps        []runtimeApp   `json:"apps"`
	Annotations []appcNameText `json:"annotations"`
}

type runtimeApp struct {
	Name           AppName      `json:"name"`
	Image          runtimeImage `json:"image"`
	App            *appcApp     `json:"app,omitempty"`
	ReadOnlyRootFS bool         `json:"readOnlyRootFS,omitempty"`
}

type runtimeImage struct {
	Name string `json:"name"`
	ID   string `json:"id"`
}

type imageManifest struct {
	Version string         `json:"acVersion"`
	Kind    string         `json:"acKind"`
	Name    string         `json:"name"`
	Labels  []appcNameText `json:"labels,omitempty"`
	App     *appcApp       `json:"app,omitempty"`
}

type appcApp struct {
	Exec              []string       `json:"exec,omitempty"`
	User              string         `json:"user"`
	Group             string         `json:"group"`
	SupplementaryGIDs []int          `json:"supplementaryGIDs,omitempty"`
	WorkingDirectory  string         `json:"workingDirectory,omitempty"`
	Environment       []appcNameText `json:"environment,omitempty"`
}

type appcNameText struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

const (
	appcVersion   = "0.8.11"
	podFile       = "pod"
	podLockFile   = "pod.lck"
	podBirthFile  = "pod-created"
	appsInfoDir   = "appsinfo"
	manifestFile  = "manifest"
	mutableName   = "coreos.com/rkt/stage1/mutable"
	imageNameBase = "containerd.io/container/"
)

func newPodManifest() podManifest {
	return podManifest{
		Version:     appcVersion,
		Kind:        "PodManifest",
		Apps:        []runtimeApp{},
		Annotations: []appcNameText{{mutableName, "true"}},
	}
}

// newImageManifest says of an OCI spec what appc has words for. The spec stays
// the authority: interface version 7 is given that.
func newImageManifest(name AppName, spec *specs.Spec) imageManifest {
	m := imageManifest{Version: appcVersion, Kind: "ImageManifest", Name: imageNameBase + string(name)}
	p := spec.Process
	if p == nil {
		return m
	}
	a := &appcApp{
		Exec:  p.Args,
		User:  strconv.FormatUint(uint64(p.User.UID), 10),
		Group: strconv.FormatUint(uint64(p.User.GID), 10),
	}
	for _, gid := range p.User.AdditionalGids {
		a.SupplementaryGIDs = append(a.SupplementaryGIDs, int(gid))
	}
	if filepath.IsAbs(p.Cwd) {
		a.WorkingDirectory = p.Cwd
	}
	for _, kv := range p.Env {
		k, v, ok := strings.Cut(kv, "=")
		known := slices.ContainsFunc(a.Environment, func(e appcNameText) bool { return e.Name == k })
		if ok && !known && isAppcEnv(k) {
			a.Environment = append(a.Environment, appcNameText{k, v})
		}
	}
	m.App = a
	return m
}

// isAppcEnv tells whether appc accepts the name of an environment variable.
func isAppcEnv(name string) bool {
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		rest := c >= '0' && c <= '9' || c == '.' || c == '-'
		if !letter && (i == 0 || !rest) {
			return false
		}
	}
	return name != ""
}

// writeManifests writes an app's image manifest and its entry in the pod's.
func writeManifests(dir *os.Root, name AppName, spec *specs.Spec) error {
	image := newImageManifest(name, spec)
	b, err := json.Marshal(image)
	if err != nil {
		return err
	}
	if err := replaceFile(dir, filepath.Join(appsInfoDir, string(name), manifestFile), b); err != nil {
		return err
	}
	sum := sha512.Sum512(b)
	entry, err := json.Marshal(runtimeApp{
		Name:           name,
		Image:          runtimeImage{Name: image.Name, ID: "sha512-" + hex.EncodeToString(sum[:])},
		App:            image.App,
		ReadOnlyRootFS: spec.Root != nil && spec.Root.Readonly,
	})
	if err != nil {
		return err
	}
	return editManifest(dir, name, entry)
}

// dropManifest removes an app's entry from the pod manifest. A pod without a
// manifest is half removed, and has no entry.
func dropManifest(dir *os.Root, name AppName) error {
	err := editManifest(dir, name, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// editManifest replaces, adds or (with a nil entry) removes an app's entry.
// Everything else in the manifest is kept as it is.
func editManifest(dir *os.Root, name AppName, entry json.RawMessage) error {
	return locked(dir, func() error {
		var m struct {
			Apps []json.RawMessage `json:"apps"`
		}
		if err := readRecord(dir, podFile, &m); err != nil {
			return err
		}
		m.Apps = slices.DeleteFunc(m.Apps, func(raw json.RawMessage) bool {
			var a struct {
				Name AppName `json:"name"`
			}
			return json.Unmarshal(raw, &a) == nil && a.Name == name
		})
		if entry != nil {
			m.Apps = append(m.Apps, entry)
		}
		if m.Apps == nil {
			m.Apps = []json.RawMessage{} // appc's null would do, but reads badly
		}
		return writeRecord(dir, podFile, m)
	})
}

// locked calls f under the lock that rkt's tools take when they change a pod's
// manifest. The error is fs.ErrNotExist if the pod is half removed.
func locked(dir *os.Root, f func() error) error {
	lock, err := dir.OpenFile(podLockFile, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(lock, unix.LOCK_EX); err != nil {
		return err
	}
	return f()
}
