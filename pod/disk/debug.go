package disk

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

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

// debugs collects the debug apps of an app, and those of all apps if the shim is dead: then
// nothing serves their users any more. It does so before the app itself is collected.
func (p *podCollector) debugs(ctx context.Context, of AppName) error {
	names, err := p.dir.names(debugDir)
	if err != nil || len(names) == 0 {
		return err
	}
	alive, err := p.dir.shimLives()
	if err != nil {
		return err
	}
	apps, err := p.dir.apps()
	if err != nil {
		return err
	}
	for _, id := range names {
		bundle := p.dir.debugBundle(id)
		found := false
		for _, name := range apps {
			a, err := p.dir.openApp(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if a.record.Bundle == "" { // its record was not written: rkt.json names it
				a.record.Bundle = bundle
				if !a.backlink().kept() {
					continue
				}
				a.record.ID, a.record.Debugs = id, of
			}
			if a.record.ID != id || a.record.Debugs == "" {
				continue
			}
			found = true
			if alive && a.record.Debugs != of {
				continue
			}
			a.record.Bundle = bundle // the pod directory may have been moved
			if _, err := p.app(ctx, a, CollectedExit{Found: true}); err != nil {
				return err
			}
			if err := p.dir.RemoveDebug(id); err != nil {
				return err
			}
		}
		if !found && !alive {
			if err := p.dir.RemoveDebug(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// names returns the names in a directory of the pod, sorted; none if it does not exist.
func (d *Dir) names(dir string) ([]string, error) {
	f, err := d.root.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // another process has removed it after the open
	}
	slices.Sort(names)
	return names, err
}
