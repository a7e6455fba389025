package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// The directories below pods/ that only rkt's tools use.
const (
	dirPrepared = "prepared"
	dirGarbage  = "garbage"
)

// directories are the directories below pods/, in the order in which a pod moves through
// them. A search in that order finds a pod that is being moved.
var directories = []string{dirEmbryo, dirPrepare, dirPrepared, dirRun, dirExited, dirGarbage}

// Reader reads pods that other processes own. It makes no file, takes no lock and starts no
// process, so it never delays a pod's owner. A pod may change or vanish while it is read.
type Reader struct{ store *Store }

// NewReader returns a reader of a data directory, which need not exist.
func NewReader(dataDir string) (*Reader, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dataDir, err)
	}
	return &Reader{&Store{dir: dir}}, nil
}

// Path returns the data directory.
func (r *Reader) Path() string { return r.store.dir }

// Directories returns the paths of the directories of pods, whether they exist or not.
func (r *Reader) Directories() []string {
	var paths []string
	for _, state := range directories {
		paths = append(paths, r.store.path(state, ""))
	}
	return paths
}

// UUIDs returns the UUIDs of all pods, sorted. It returns none if there is no data
// directory.
func (r *Reader) UUIDs() ([]string, error) {
	var uuids []string
	for _, state := range directories {
		names, err := readNames(r.store.path(state, ""))
		if err != nil {
			return nil, err
		}
		uuids = append(uuids, slices.DeleteFunc(names, func(name string) bool { return !isUUID(name) })...)
	}
	slices.Sort(uuids)
	return slices.Compact(uuids), nil // a pod that moved meanwhile was found twice
}

// Open opens the directory of a pod, which stays open when it is renamed. It also returns
// the name of the directory below pods/ in which the pod is. The error is fs.ErrNotExist if
// there is no such pod.
func (r *Reader) Open(uuid string) (dir *os.Root, state string, err error) {
	if !isUUID(uuid) {
		return nil, "", fmt.Errorf("%q is not the UUID of a pod", uuid)
	}
	for _, state := range directories {
		dir, err := os.OpenRoot(r.store.path(state, uuid))
		if !errors.Is(err, fs.ErrNotExist) {
			return dir, state, err
		}
	}
	return nil, "", fmt.Errorf("pod %s: %w", uuid, fs.ErrNotExist)
}

// PodFiles has the records of a pod. They are read one after the other, so they may be of
// different moments.
type PodFiles struct {
	UUID  string
	State string    // the name of the directory below pods/
	Dir   string    // path of the pod directory when it was read
	Made  time.Time // time at which the pod was made; the zero time if that is not on record

	Recorded   bool // it has a shim.json: without one the pod is rkt's, or is being made or removed
	Key        Key
	BootID     string
	Shim       ProcessRecord
	Stage1     Stage1Record
	Supervisor *SupervisorRecord
	Sandbox    *SandboxRecords // nil if the pod is no sandbox
	Apps       []AppFiles      // in the order of their generations
	Damaged    []error         // errors of records that could not be read
}

// SandboxRecords has the records of a pod of the Sandbox service.
type SandboxRecords struct {
	ID, Bundle  string
	Holder      *ProcessRecord
	Annotations map[string]string // ours, of the pod
}

// AppFiles has the records of an app.
type AppFiles struct {
	Name          AppName
	Recorded      bool // it has an app.json: without one it is being made or removed
	Record        AppRecord
	Made, Started time.Time // zero if that is not on record
	Exit          *abi.Status
	Execs         []ExecFiles // execs that have ended and whose records were not removed
}

// ExecFiles is the record of an exec's exit.
type ExecFiles struct {
	ID   string
	Exit abi.Status
}

// Read reads the records of a pod. The error is fs.ErrNotExist if there is no such pod.
// Damaged records are no error of Read.
func (r *Reader) Read(uuid string) (*PodFiles, error) {
	dir, state, err := r.Open(uuid)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	p := &PodFiles{UUID: uuid, State: state, Dir: dir.Name()}
	var shim shimRecord
	if p.read(dir, shimFile, &shim) {
		p.Recorded = true
		p.Key = Key{Daemon: shim.Daemon, Namespace: shim.Namespace, Sandbox: shim.Sandbox}
		p.BootID, p.Shim, p.Stage1, p.Supervisor = shim.BootID, shim.Shim, shim.Stage1, shim.Supervisor
	}
	for _, name := range []string{podBirthFile, podLockFile, "."} { // nothing is ever written to pod.lck
		if p.Made.IsZero() {
			p.Made = madeAt(dir, name)
		}
	}
	var sandbox sandboxRecord
	if p.read(dir, sandboxFile, &sandbox) {
		p.Sandbox = &SandboxRecords{ID: sandbox.ID, Bundle: sandbox.Bundle, Holder: sandbox.Holder, Annotations: sandbox.Annotations}
	}
	d := &Dir{store: r.store, uuid: uuid, state: state, root: dir}
	names, err := d.apps()
	if err != nil {
		p.Damaged = append(p.Damaged, err)
	}
	for _, name := range names {
		p.Apps = append(p.Apps, p.readApp(dir, name))
	}
	slices.SortStableFunc(p.Apps, func(a, b AppFiles) int { return a.Record.Generation - b.Record.Generation })
	if gone(dir) {
		return nil, fmt.Errorf("pod %s: %w", uuid, fs.ErrNotExist)
	}
	return p, nil
}

// read reads a record, and reports whether it exists and is not damaged.
func (p *PodFiles) read(dir *os.Root, name string, v any) bool {
	err := readRecord(dir, name, v)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Damaged = append(p.Damaged, err)
	}
	return err == nil
}

func (p *PodFiles) readApp(dir *os.Root, name AppName) AppFiles {
	a := AppFiles{Name: name}
	base := filepath.Join(appsInfoDir, string(name))
	a.Recorded = p.read(dir, filepath.Join(base, appFile), &a.Record)
	a.Made, a.Started = a.Record.Created, a.Record.Started
	if a.Made.IsZero() { // an earlier release has made the app
		a.Made, a.Started = madeAt(dir, filepath.Join(base, manifestFile)), madeAt(dir, filepath.Join(base, startedFile))
	}
	a.Exit = p.readStatus(dir, abi.StatusPath(abi.StatusDir, string(name), ""))
	execs := abi.StatusPath(abi.StatusDir, string(name), "x")
	entries, err := fs.ReadDir(dir.FS(), filepath.Dir(execs))
	if err != nil { // there is no such directory before the first exec has ended
		return a
	}
	for _, e := range entries {
		if e.Name()[0] == '.' {
			continue
		}
		if exit := p.readStatus(dir, filepath.Join(filepath.Dir(execs), e.Name())); exit != nil {
			a.Execs = append(a.Execs, ExecFiles{e.Name(), *exit})
		}
	}
	return a
}

// ImageManifest returns the text of an app's image manifest. Apps of stage1s of interface version
// 7 have none in the pod's directory; it is made from the config.json of the bundle.
func (p *PodFiles) ImageManifest(dir *os.Root, name AppName) ([]byte, error) {
	text, err := dir.ReadFile(filepath.Join(appsInfoDir, string(name), manifestFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	for _, a := range p.Apps {
		if a.Name == name && a.Recorded {
			spec, err := a.spec()
			if err != nil {
				return nil, fmt.Errorf("app %s: %w", name, err)
			}
			text, _, err = describeSpec(name, spec)
			return text, err
		}
	}
	return nil, fmt.Errorf("app %s: %w", name, fs.ErrNotExist)
}

// Manifest returns the text of the pod's manifest. It also has the apps that are not in the file,
// as ImageManifest describes them; if the bundle of one has gone, its name alone.
func (p *PodFiles) Manifest(dir *os.Root) ([]byte, error) {
	text, err := dir.ReadFile(podFile)
	if err != nil {
		return nil, err
	}
	var m struct {
		Apps []struct {
			Name AppName `json:"name"`
		} `json:"apps"`
	}
	all := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(text, &m), json.Unmarshal(text, &all)); err != nil {
		return nil, errDamaged(dir.Name(), podFile, err)
	}
	var entries []json.RawMessage
	if err := json.Unmarshal(all["apps"], &entries); err != nil {
		return nil, errDamaged(dir.Name(), podFile, err)
	}
	has := map[AppName]bool{}
	for _, a := range m.Apps {
		has[a.Name] = true
	}
	for _, a := range p.Apps {
		if has[a.Name] || !a.Recorded {
			continue
		}
		spec, err := a.spec()
		if err != nil {
			spec = &specs.Spec{}
		}
		_, entry, err := describeSpec(a.Name, spec)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	if all["apps"], err = json.Marshal(entries); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// spec reads the config.json of the app's bundle.
func (a *AppFiles) spec() (*specs.Spec, error) {
	var spec specs.Spec
	err := withRoot(a.Record.Bundle, func(bundle *os.Root) error { return readRecord(bundle, "config.json", &spec) })
	return &spec, err
}

// readStatus reads the record of an exit. It returns nil if there is none. A stage1 may have
// put something else than a file there.
func (p *PodFiles) readStatus(dir *os.Root, name string) *abi.Status {
	var exit abi.Status
	root, err := dir.Open(".")
	if err == nil {
		defer root.Close()
		var text []byte
		var mtime time.Time
		if text, mtime, err = abi.ReadAt(int(root.Fd()), name, abi.MaxStatus); err == nil {
			exit, err = abi.ParseStatus(text, mtime)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		p.Damaged = append(p.Damaged, fmt.Errorf("%s: %w", filepath.Join(dir.Name(), name), err))
		return nil
	}
	return &exit
}

// madeAt returns the time at which a file was written, or the zero time if there is none.
func madeAt(dir *os.Root, name string) time.Time {
	st, err := dir.Lstat(name)
	if err != nil {
		return time.Time{}
	}
	return st.ModTime()
}

// gone reports whether an open directory was removed.
func gone(dir *os.Root) bool {
	f, err := dir.Open(".")
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	var st unix.Stat_t
	return unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink == 0
}
