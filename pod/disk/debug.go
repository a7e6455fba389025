package disk

import (
	"errors"
	"io/fs"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// debugDir is the directory of a pod that has the bundles of its debug apps. Such a bundle is
// in the pod directory, because containerd has none for an app that it does not know.
const debugDir = "debug"

// MakeDebug makes the bundle of a debug app, with an empty rootfs, and returns its path.
func (d *Dir) MakeDebug(id string) (string, error) {
	for _, name := range []string{debugDir, filepath.Join(debugDir, id), filepath.Join(debugDir, id, "rootfs")} {
		// Users of a user namespace must be able to reach the root file system.
		if err := d.root.Mkdir(name, 0o711); err != nil && !(name == debugDir && errors.Is(err, fs.ErrExist)) {
			return "", err
		}
	}
	d.store.Fault("mkdir " + debugDir)
	return d.debugBundle(id), nil
}

// debugBundle returns the present path of a debug app's bundle.
func (d *Dir) debugBundle(id string) string { return filepath.Join(d.Path(), debugDir, id) }

// RemoveDebug removes the bundle of a debug app. It unmounts what is mounted there.
func (d *Dir) RemoveDebug(id string) error {
	if err := unmountTree(filepath.Join(d.debugBundle(id), "rootfs")); err != nil {
		return err
	}
	if err := d.root.RemoveAll(filepath.Join(debugDir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.store.Fault("remove " + debugDir)
	return nil
}

// AddDebugApp is AddApp for a debug app of the app target.
func (d *Dir) AddDebugApp(id, bundle string, target AppName, spec *specs.Spec) (*AppDir, error) {
	return d.addApp(AppRecord{ID: id, Bundle: bundle, Debugs: target}, spec)
}
