package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/containerd/log"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// startedFile exists if an earlier release has started the app's program.
const startedFile = "started"

// AppDir is an app on disk: appsinfo/NAME and rkt.json in its bundle. Stage1s of interface
// versions 1 to 6 also have the app in appc's manifests, which stage1/immutable writes.
type AppDir struct {
	pod  *Dir
	name AppName
	made bool // by this process

	// writing is held while app.json is written.
	writing sync.Mutex
	record  AppRecord
}

// AddApp gives the app of a container a name, and writes rkt.json into its bundle and app.json,
// in this order. If it fails, nothing of the app remains.
func (d *Dir) AddApp(id, bundle string, spec *specs.Spec) (*AppDir, error) {
	return d.addApp(AppRecord{ID: id, Bundle: bundle}, spec)
}

// addApp adds the app that a record describes. It sets the other fields of the record.
func (d *Dir) addApp(r AppRecord, spec *specs.Spec) (*AppDir, error) {
	r.Generation = int(d.generation.Add(1))
	r.Version, r.Name, r.Rootfs, r.Poststop = recordVersion, newAppName(r.ID, r.Generation), true, newPoststop(spec)
	r.Created = time.Now().UTC()
	a := &AppDir{pod: d, name: r.Name, made: true, record: r}
	if err := a.write(); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: app %s: %w", d.uuid, a.name, err), a.Remove())
	}
	return a, nil
}

func (a *AppDir) write() error {
	boot, err := proc.BootID()
	if err != nil {
		return err
	}
	bundle, err := openHandle(a.record.Bundle)
	if err != nil {
		return err
	}
	defer bundle.close()
	err = bundle.create(bundleFile, bundleRecord{
		Version: recordVersion, BootID: boot, DataDir: a.pod.store.dir, Pod: a.pod.uuid, App: a.name,
	})
	if err != nil {
		return err
	}
	a.pod.store.Fault("write " + bundleFile)
	if err := a.pod.root.Mkdir(a.file(""), 0o750); err != nil {
		return err
	}
	a.pod.store.Fault("mkdir " + appsInfoDir)
	if err := a.pod.handle.create(a.file(appFile), a.record); err != nil {
		return err
	}
	a.pod.store.Fault("write " + appFile)
	return nil
}

// openApp opens an app that another process has added. The error is fs.ErrNotExist if the
// app does not exist.
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
		return a, nil // its maker was killed before it wrote the record, or its remover after it removed it
	}
	if err == nil && a.record.Name != name {
		err = errDamaged(d.root.Name(), a.file(appFile), fmt.Errorf("name: it is of app %q", string(a.record.Name)))
	}
	if err != nil {
		return nil, fmt.Errorf("pod %s: app %s: %w", d.uuid, name, err)
	}
	return a, nil
}

// apps returns the names of all apps that have anything on disk.
func (d *Dir) apps() ([]AppName, error) {
	entries, err := d.names(appsInfoDir)
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

// Path returns the present path of appsinfo/NAME in the pod directory.
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
	if err := a.pod.write(a.made, a.file(appFile), r); err != nil {
		return fmt.Errorf("pod %s: app %s: %w", a.pod.uuid, a.name, err)
	}
	a.record = r
	a.pod.store.Fault("update " + appFile)
	return nil
}

// DropExec removes the stage1's record of an exec's exit, if there is one. It follows no link.
func (a *AppDir) DropExec(exec string) error {
	path := abi.StatusPath(abi.StatusDir, string(a.name), exec)
	if err := a.pod.handle.remove(filepath.Dir(path), filepath.Base(path)); err != nil {
		return fmt.Errorf("pod %s: app %s: %w", a.pod.uuid, a.name, err)
	}
	return nil
}

// MarkStarted records that the app's program was started now.
func (a *AppDir) MarkStarted() error {
	return a.Update(func(r *AppRecord) { r.Started = time.Now().UTC() })
}

// Poststop runs the poststop hooks of the spec, unless an earlier call has begun to run
// them. If a hook fails, the next ones run all the same. When ctx ends, Poststop returns an error, and the hooks go on
// under limits of their own (Store.Hooks).
func (a *AppDir) Poststop(ctx context.Context) error {
	r := a.Record()
	if r.Poststop == nil {
		return nil
	}
	// Make the marker before the first hook runs, because hooks that were interrupted must
	// not run again: they need not be idempotent. Look for the record under the lock, because a
	// removal of the app also removes the marker, after the record.
	err := locked(a.pod.root, func() error {
		if _, err := a.pod.root.Lstat(a.file(appFile)); err != nil {
			return err
		}
		return createFile(a.pod.root, a.file(poststopFile), 0o640, nil)
	})
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return nil // another process runs the hooks, or has removed the app
	}
	if err != nil {
		return fmt.Errorf("pod %s: app %s: %w", a.pod.uuid, a.name, err)
	}
	a.pod.store.Fault("mark poststop")
	release := func() {}
	if c := a.pod.store.Children; c != nil {
		release = c.Expect()
	}
	done := make(chan error, 1)
	a.pod.store.Hooks.running.Go(func() {
		defer release()
		done <- r.Poststop.run(r.ID, r.Bundle, a.hookKilled)
	})
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("its poststop hooks go on: %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("container %s: %w", r.ID, err)
	}
	return nil
}

// hookKilled tells of a hook that was killed: in the pod's journal, unless the pod has gone, and in the log, because the call
// that began the hook may have been answered.
func (a *AppDir) hookKilled(path string, began time.Time, err error) {
	log.L.WithError(err).WithFields(log.Fields{"pod": a.pod.uuid, "app": a.Record().ID}).Warn("a poststop hook was killed")
	e := journal.Entry{
		Time: began, Entrypoint: journal.Poststop, Argv: []string{path}, App: string(a.name),
		Millis: float64(time.Since(began).Milliseconds()), Code: proc.KilledCode, Error: abi.Printable(err.Error()),
	}
	if err := journal.Append(a.pod.Path(), e); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.L.WithError(err).Warnf("pod %s: journal", a.pod.uuid)
	}
}

// Remove removes the app's entry in the manifest, its files and rkt.json. It is idempotent.
// If the bundle belongs to a later container by now, Remove leaves its rkt.json alone.
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

// Retire is Remove for an app whose exit is read from its bundle later: rkt.json stays, with the
// exit.
func (a *AppDir) Retire(code uint32, at time.Time) error {
	_, err := a.backlink().recordExit(&exitRecord{PID: a.Record().PID, Code: code, At: at})
	if err == nil {
		err = a.RemoveFiles()
	}
	if err != nil {
		return fmt.Errorf("pod %s: app %s: %w", a.pod.uuid, a.name, err)
	}
	return nil
}

// RemoveFiles removes the app's files in the pod directory. It removes the app's directory
// in appsinfo last, because the app counts as removed when that is gone.
func (a *AppDir) RemoveFiles() error {
	if err := a.pod.dropManifest(a.name); err != nil {
		return err
	}
	a.pod.store.Fault("drop manifest")
	status := string(a.name)
	if err := a.pod.handle.remove(abi.StatusDir, status, spareOf(status), status+"-created", status+"-started", status+".exec"); err != nil {
		return err
	}
	a.pod.store.Fault("remove status")
	if err := a.dropHooks(); err != nil {
		return err
	}
	if err := a.pod.handle.remove(appsInfoDir, string(a.name)); err != nil {
		return err
	}
	a.pod.store.Fault("remove " + appsInfoDir)
	return nil
}

// dropHooks removes the record of an app with poststop hooks, before the marker that says that they
// have begun to run.
func (a *AppDir) dropHooks() error {
	if a.Record().Poststop == nil {
		return nil
	}
	err := locked(a.pod.root, func() error {
		return a.pod.handle.remove(filepath.Join(appsInfoDir, string(a.name)), appFile)
	})
	if errors.Is(err, fs.ErrNotExist) { // the pod is half removed
		return nil
	}
	return err
}

// RemoveBacklink removes rkt.json from the app's bundle, as Remove does last.
func (a *AppDir) RemoveBacklink() error { return a.backlink().remove() }

// backlink returns the record in the app's bundle that names the app.
func (a *AppDir) backlink() backlink { return backlink{a.Record().Bundle, a.pod.uuid, a.name} }

// bundle returns the bundle that RKT_BUNDLE names for the app: the derived bundle, if
// Create has made one, else the client's.
func (a *AppDir) bundle() string {
	derived := filepath.Join(a.Path(), "bundle")
	if _, err := os.Lstat(filepath.Join(derived, "config.json")); err == nil {
		return derived
	}
	return a.record.Bundle
}

// dropManifest removes an app's entry from the pod manifest, if there is one. If there is no
// manifest, the pod is half removed, and dropManifest returns nil.
func (d *Dir) dropManifest(name AppName) error {
	text, err := d.handle.read(podFile)
	if err == nil && bytes.Contains(text, []byte(name)) {
		err = locked(d.root, func() error {
			return replaceManifest(d.root, func(m *Manifest) error {
				m.Drop(func(app AppName) bool { return app == name })
				return nil
			})
		})
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
