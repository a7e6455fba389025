package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// AppDir is what is on disk of an app: appsinfo/NAME, its entry in the pod
// manifest, and rkt.json in its bundle.
type AppDir struct {
	pod  *Dir
	name AppName

	// writing orders the writers of app.json.
	writing sync.Mutex
	record  AppRecord
}

// AddApp gives the app of a container a name, and writes rkt.json into its bundle, its files
// below appsinfo and its entry in the pod manifest, in this order. On failure
// nothing of it remains.
func (d *Dir) AddApp(id, bundle string, spec *specs.Spec) (*AppDir, error) {
	generation := int(d.generation.Add(1))
	a := &AppDir{pod: d, name: newAppName(id, generation)}
	a.record = AppRecord{
		Version: recordVersion, ID: id, Bundle: bundle,
		Name: a.name, Generation: generation, Rootfs: true, Poststop: newPoststop(spec),
	}
	if err := a.write(spec); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: app %s: %w", d.uuid, a.name, err), a.Remove())
	}
	return a, nil
}

func (a *AppDir) write(spec *specs.Spec) error {
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	err = withRoot(a.record.Bundle, func(bundle *os.Root) error {
		return writeRecord(bundle, bundleFile, bundleRecord{
			Version: recordVersion, BootID: boot, DataDir: a.pod.store.dir, Pod: a.pod.uuid, App: a.name,
		})
	})
	if err != nil {
		return err
	}
	a.pod.store.Fault("write " + bundleFile)
	if err := a.pod.root.Mkdir(a.file(""), 0o750); err != nil {
		return err
	}
	a.pod.store.Fault("mkdir " + appsInfoDir)
	if err := writeRecord(a.pod.root, a.file(appFile), a.record); err != nil {
		return err
	}
	a.pod.store.Fault("write " + appFile)
	if err := writeManifests(a.pod.root, a.name, spec); err != nil {
		return err
	}
	a.pod.store.Fault("write manifests")
	return nil
}

// openApp opens an app that another process has added. The error is
// fs.ErrNotExist if it is not there.
func (d *Dir) openApp(name AppName) (*AppDir, error) {
	if !name.valid() {
		return nil, fmt.Errorf("pod %s: %q is not the name of an app", d.uuid, string(name))
	}
	a := &AppDir{pod: d, name: name}
	if _, err := d.root.Lstat(a.file("")); err != nil {
		return nil, err
	}
	err := readRecord(d.root, a.file(appFile), &a.record)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil // stopped before it was written, or after it was removed
	}
	if err == nil && a.record.Name != name {
		err = errDamaged(d.root, a.file(appFile), fmt.Errorf("name: it is of app %q", string(a.record.Name)))
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: app %s: %w", d.uuid, name, err)
	}
	return a, nil
}

// apps returns the names of all apps that have anything on disk.
func (d *Dir) apps() ([]AppName, error) {
	f, err := d.root.Open(appsInfoDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.Readdirnames(-1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed since it was opened, by another `delete`
	}
	if err != nil {
		return nil, err
	}
	var names []AppName
	for _, e := range entries {
		if n := AppName(e); n.valid() {
			names = append(names, n)
		}
	}
	return names, nil
}

// Name returns the app's name, as the ABI knows it.
func (a *AppDir) Name() string { return string(a.name) }

// Path returns appsinfo/NAME in the pod directory, where that is now.
func (a *AppDir) Path() string { return filepath.Join(a.pod.Path(), a.file("")) }

// file returns the path of one of the app's files in the pod directory.
func (a *AppDir) file(name string) string {
	return filepath.Join(appsInfoDir, string(a.name), name)
}

// Record returns the record as it was last written.
func (a *AppDir) Record() AppRecord {
	a.writing.Lock()
	defer a.writing.Unlock()
	return a.record
}

// Update changes the record and writes it.
func (a *AppDir) Update(change func(*AppRecord)) error {
	a.writing.Lock()
	defer a.writing.Unlock()
	r := a.record
	change(&r)
	if reflect.DeepEqual(r, a.record) {
		return nil
	}
	if err := writeRecord(a.pod.root, a.file(appFile), r); err != nil {
		return fmt.Errorf("pod %s: app %s: %w", a.pod.uuid, a.name, err)
	}
	a.record = r
	a.pod.store.Fault("update " + appFile)
	return nil
}

// Poststop runs the poststop hooks of the spec, unless that was begun before.
// All are run, whatever becomes of each.
func (a *AppDir) Poststop(ctx context.Context) error {
	r := a.Record()
	if r.Poststop == nil {
		return nil
	}
	// The marker is made before the first hook runs: hooks that were interrupted are
	// not run again, because hooks need not be idempotent.
	err := createFile(a.pod.root, a.file(poststopFile), 0o640, nil)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil // another process runs the hooks, or has removed the app
	}
	if err != nil {
		return fmt.Errorf("pod %s: app %s: %w", a.pod.uuid, a.name, err)
	}
	a.pod.store.Fault("mark poststop")
	if c := a.pod.store.Children; c != nil {
		release := c.Expect()
		defer release()
	}
	if err := r.Poststop.run(ctx, r.ID, r.Bundle); err != nil {
		return fmt.Errorf("container %s: %w", r.ID, err)
	}
	return nil
}

// Remove removes the app's entry in the manifest, its files and rkt.json. It is
// idempotent, and leaves alone what has come to its bundle since.
func (a *AppDir) Remove() error {
	err := a.RemoveFiles()
	if err == nil {
		err = a.backlink().remove()
	}
	if err != nil {
		return fmt.Errorf("pod %s: app %s: %w", a.pod.uuid, a.name, err)
	}
	return nil
}

// RemoveFiles removes what the pod directory has of the app. Its directory in
// appsinfo goes last: as long as it is there, the app is not removed.
func (a *AppDir) RemoveFiles() error {
	if err := dropManifest(a.pod.root, a.name); err != nil {
		return err
	}
	a.pod.store.Fault("drop manifest")
	status := filepath.Join(abi.StatusDir, string(a.name))
	for _, f := range []string{status, spareOf(status), status + "-created", status + "-started", status + ".exec"} {
		if err := a.pod.root.RemoveAll(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	a.pod.store.Fault("remove status")
	if err := a.pod.root.RemoveAll(a.file("")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	a.pod.store.Fault("remove " + appsInfoDir)
	return nil
}

// RemoveBacklink removes rkt.json from the app's bundle, as Remove does last.
func (a *AppDir) RemoveBacklink() error { return a.backlink().remove() }

// backlink is what leads from the app's bundle to it.
func (a *AppDir) backlink() backlink { return backlink{a.Record().Bundle, a.pod.uuid, a.name} }

// bundle returns what RKT_BUNDLE names for the app: a derived bundle, if Create
// has made one.
func (a *AppDir) bundle() string {
	derived := filepath.Join(a.Path(), "bundle")
	if _, err := os.Lstat(filepath.Join(derived, "config.json")); err == nil {
		return derived
	}
	return a.record.Bundle
}
