package disk

import (
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/appc/spec/schema"
	"github.com/appc/spec/schema/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/removal"
)

const (
	podFile       = "pod"
	podLockFile   = removal.Lock
	podBirthFile  = "pod-created" // of a pod that rkt or an earlier release has made
	appsInfoDir   = "appsinfo"
	manifestFile  = "manifest"
	mutableName   = "coreos.com/rkt/stage1/mutable"
	imageNameBase = "containerd.io/container/"
	appcVersion   = "0.8.11" // schema.AppContainerVersion
)

// newPodManifest is the manifest of a pod without apps, as appc's library writes it.
const newPodManifest = `{"acVersion":"` + appcVersion + `","acKind":"PodManifest","apps":[],"volumes":null,"isolators":null,` +
	`"annotations":[{"name":"` + mutableName + `","value":"true"}],"ports":null}`

// newApp translates the fields of an OCI spec that appc has, too. Stage1s of interface
// version 7 do not depend on the result: they get the spec itself.
func newApp(p *specs.Process) *types.App {
	if p == nil {
		return nil
	}
	app := &types.App{
		Exec:        p.Args,
		User:        strconv.FormatUint(uint64(p.User.UID), 10),
		Group:       strconv.FormatUint(uint64(p.User.GID), 10),
		Environment: appcEnvironment(p.Env),
	}
	for _, gid := range p.User.AdditionalGids {
		app.SupplementaryGIDs = append(app.SupplementaryGIDs, int(gid))
	}
	if filepath.IsAbs(p.Cwd) {
		app.WorkingDirectory = p.Cwd
	}
	return app
}

// Describe returns the text of an app's image manifest, and the app's entry in the pod's
// manifest, which the caller completes.
func Describe(name AppName, app *types.App) (image []byte, entry *schema.RuntimeApp, err error) {
	m := schema.BlankImageManifest()
	m.Name = imageNameBase + types.ACIdentifier(name)
	m.App = app
	if image, err = json.Marshal(m); err != nil {
		return nil, nil, fmt.Errorf("image manifest of app %s: %w", name, err)
	}
	sum := sha512.Sum512(image)
	id, err := types.NewHash("sha512-" + hex.EncodeToString(sum[:]))
	if err != nil {
		return nil, nil, err
	}
	return image, &schema.RuntimeApp{Name: types.ACName(name), Image: schema.RuntimeImage{Name: &m.Name, ID: *id}, App: app}, nil
}

// appcEnvironment returns the variables whose names appc accepts. Of several variables
// with one name it returns the first.
func appcEnvironment(env []string) types.Environment {
	var out types.Environment
	for _, kv := range env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			continue
		}
		if _, known := out.Get(name); known {
			continue
		}
		// appc checks names only in this method.
		if _, err := (types.Environment{{Name: name}}).MarshalJSON(); err == nil {
			out = append(out, types.EnvironmentVariable{Name: name, Value: value})
		}
	}
	return out
}

// describeSpec is Describe for an app of a stage1 of interface version 7, which has no manifest
// on disk.
func describeSpec(name AppName, spec *specs.Spec) (image, entry []byte, err error) {
	image, app, err := Describe(name, newApp(spec.Process))
	if err != nil {
		return nil, nil, err
	}
	app.ReadOnlyRootFS = spec.Root != nil && spec.Root.Readonly
	if entry, err = json.Marshal(app); err != nil {
		return nil, nil, fmt.Errorf("pod manifest's entry of app %s: %w", name, err)
	}
	return image, entry, nil
}

// Manifest is a pod's manifest, as far as stage 0 changes it.
type Manifest struct {
	Apps        []json.RawMessage `json:"apps"`
	Volumes     []json.RawMessage `json:"volumes,omitempty"`
	Annotations json.RawMessage   `json:"annotations,omitempty"`
}

// Drop removes the entries of apps whose names drop returns true for.
func (m *Manifest) Drop(drop func(AppName) bool) {
	m.Apps = slices.DeleteFunc(m.Apps, func(raw json.RawMessage) bool {
		var a struct {
			Name AppName `json:"name"`
		}
		return json.Unmarshal(raw, &a) == nil && drop(a.Name)
	})
}

// EditManifest calls edit with the manifest of the pod in a directory and writes the
// result. Members that Manifest does not have are kept. Call it only within
// LockManifest. The error is fs.ErrNotExist if the pod is half removed.
func EditManifest(podDir string, edit func(*Manifest) error) error {
	return withRoot(podDir, func(dir *os.Root) error { return replaceManifest(dir, edit) })
}

// LockManifest calls f under the lock that rkt's tools take when they change a pod's
// manifest. The error is fs.ErrNotExist if the pod is half removed.
func LockManifest(podDir string, f func() error) error {
	return withRoot(podDir, func(dir *os.Root) error { return locked(dir, f) })
}

// replaceManifest is EditManifest for an open directory. The caller holds the lock.
// Readers need no lock.
func replaceManifest(dir *os.Root, edit func(*Manifest) error) error {
	var m Manifest
	if err := readRecord(dir, podFile, &m); err != nil {
		return err
	}
	if err := edit(&m); err != nil {
		return err
	}
	if m.Apps == nil {
		m.Apps = []json.RawMessage{} // null is valid in appc, but [] is clearer to people
	}
	return writeRecord(dir, podFile, m)
}

// locked calls f under the lock that rkt's tools take when they change a pod's
// manifest. The error is fs.ErrNotExist if the pod is half removed.
func locked(dir *os.Root, f func() error) error {
	lock, err := lockManifest(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	return f()
}

// lockManifest takes the lock of the manifest, which is held until the file is closed.
func lockManifest(dir *os.Root) (*os.File, error) {
	lock, err := openManifestLock(dir)
	if err != nil {
		return nil, err
	}
	if err := flock(lock, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, nil
}

func openManifestLock(dir *os.Root) (*os.File, error) {
	return dir.OpenFile(podLockFile, os.O_RDWR, 0)
}
