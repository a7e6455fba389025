package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
)

// Modes of the directories above a bundle, and of the bundle. rktctl makes the root of the target's
// user namespace the group of the bundle.
const (
	debugMode       = 0o711
	debugBundleMode = 0o710
)

// debugBundle returns the path of a debug app's bundle.
func (d *Dir) debugBundle(id string) string { return filepath.Join(d.store.debugPath(d.uuid), id) }

// MakeDebug makes the bundle of a debug app, with an empty rootfs, and returns its path.
func (d *Dir) MakeDebug(id string) (string, error) {
	bundle := d.debugBundle(id)
	for _, dir := range []string{filepath.Dir(d.store.debugPath(d.uuid)), d.store.debugPath(d.uuid)} {
		if err := datadir.Make(dir, debugMode); err != nil {
			return "", err
		}
	}
	if err := os.Mkdir(bundle, debugBundleMode); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(bundle, "rootfs"), debugMode); err != nil {
		return "", err
	}
	d.store.Fault("mkdir " + debugDir)
	return bundle, nil
}

// RemoveDebug removes the bundle of a debug app. It unmounts what is mounted there.
func (d *Dir) RemoveDebug(id string) error {
	if err := unmountTree(filepath.Join(d.debugBundle(id), "rootfs")); err != nil {
		return err
	}
	if err := os.RemoveAll(d.debugBundle(id)); err != nil {
		return err
	}
	d.store.Fault("remove " + debugDir)
	return nil
}

// debugIDs returns the ids of the debug apps that have a bundle.
func (d *Dir) debugIDs() ([]string, error) {
	entries, err := os.ReadDir(d.store.debugPath(d.uuid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, err
}

// AddDebugApp is AddApp for a debug app of the app target.
func (d *Dir) AddDebugApp(id, bundle string, target AppName, spec *specs.Spec) (*AppDir, error) {
	return d.addApp(AppRecord{ID: id, Bundle: bundle, Debugs: target}, spec)
}
