package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
	"github.com/rkt/containerd-shim-rkt-v1/pod/bundlefile"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// recordVersion is the version of every record; docs/layout.md has the rules.
const recordVersion = 1

// Names of the records.
const (
	shimFile   = "shim.json"
	appFile    = "app.json"
	bundleFile = bundlefile.Record
)

// bootLink is a symbolic link in the pod directory whose text is the boot of the pod. Nothing is
// flushed, so after a power loss the records of the last half minute are empty or have zeros. The text
// of a short link is in its inode, which is in the file system's journal with its name.
const bootLink = "boot"

// shimRecord is $pod/shim.json.
type shimRecord struct {
	Version   int           `json:"version"`
	BootID    string        `json:"bootID"`
	Daemon    string        `json:"daemon"`
	Namespace string        `json:"namespace"`
	Sandbox   string        `json:"sandbox"`
	Shim      ProcessRecord `json:"shim"`
	// Cgroups are the daemon's cgroups, by controller, when the shim was started. Relative
	// cgroup paths are below them.
	Cgroups    map[string]string `json:"cgroups,omitempty"`
	Stage1     Stage1Record      `json:"stage1"`
	Supervisor *SupervisorRecord `json:"supervisor,omitempty"`
}

// ProcessRecord is a process: without the start time the pid may belong to another one.
type ProcessRecord struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
}

// Stage1Record names a stage1 image, and the reason for which the pod has it.
type Stage1Record struct {
	Name    string   `json:"name"`
	Digest  string   `json:"digest"`
	By      string   `json:"by,omitempty"`      // the source of the choice: docs/config.md
	Excused []string `json:"excused,omitempty"` // fields of config.json that the stage1 may ignore
}

// SupervisorRecord is the process of `run`.
type SupervisorRecord struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
	Leader    int    `json:"leader,omitempty"` // the pid that `run` has reported
}

// AppRecord is $pod/appsinfo/APP/app.json.
type AppRecord struct {
	Version    int             `json:"version"`
	ID         string          `json:"id"` // of the container
	Bundle     string          `json:"bundle"`
	Name       AppName         `json:"name"`
	Generation int             `json:"generation"`
	Rootfs     bool            `json:"rootfs,omitempty"` // something may be mounted at BUNDLE/rootfs
	Cgroup     *cgroup.Record  `json:"cgroup,omitempty"`
	PID        int             `json:"pid,omitempty"`
	StartTime  uint64          `json:"starttime,omitempty"`
	Recorder   string          `json:"recorder,omitempty"`
	State      string          `json:"state,omitempty"`
	Poststop   *poststopRecord `json:"poststop,omitempty"`
	Options    []string        `json:"options,omitempty"` // names of the runtime options that have arrived
	Unknown    []string        `json:"unknown,omitempty"` // fields of config.json that are ignored, because no spec has them
	Created    time.Time       `json:"created,omitzero"`  // when this record was written first
	Started    time.Time       `json:"started,omitzero"`  // when its program was started
	Debugs     AppName         `json:"debugs,omitempty"`  // of a debug app: the name of its target
}

// poststopRecord has the data for poststop hooks, because the spec may be gone when they
// run.
type poststopRecord struct {
	OCIVersion  string            `json:"ociVersion"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Hooks       []specs.Hook      `json:"hooks"`
}

// bundleRecord is $bundle/rkt.json. In a sandbox's, App is empty.
type bundleRecord struct {
	Version int         `json:"version"`
	BootID  string      `json:"bootID"`
	DataDir string      `json:"dataDir"`
	Pod     string      `json:"pod"`
	App     AppName     `json:"app,omitempty"`
	Exit    *exitRecord `json:"exit,omitempty"`
}

type exitRecord struct {
	PID  int       `json:"pid"`
	Code uint32    `json:"code"`
	At   time.Time `json:"at"`
}

// withRoot opens a directory, calls f with it and closes it.
func withRoot(path string, f func(*os.Root) error) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return f(root)
}

// checked is a record with a check of whether a shim can have written it. A record decides
// which processes are killed, and which directories are unmounted and removed.
type checked interface {
	check() error
}

// readRecord reads a JSON record. The error is fs.ErrNotExist if the file does not exist,
// and errdefs.ErrDataLoss if no shim can have written it.
func readRecord(dir *os.Root, name string, v any) error {
	b, err := dir.ReadFile(name)
	if err != nil {
		return err
	}
	return decodeRecord(dir.Name(), name, b, v)
}

// decodeRecord decodes the content of a record.
func decodeRecord(dir, name string, b []byte, v any) error {
	err := plainjson.Decode(b, v)
	if r, ok := v.(checked); ok && err == nil {
		err = r.check()
	}
	if err != nil {
		return errDamaged(dir, name, err)
	}
	return nil
}

// errDamaged is the error for a damaged record. Such a record is not used, because its pids
// and paths may belong to other processes and files.
func errDamaged(dir, name string, why error) error {
	return fmt.Errorf("%s is damaged: %w: correct it, or end what is left of the container and remove the file: %w",
		filepath.Join(dir, name), why, errdefs.ErrDataLoss)
}

// writeRecord replaces a JSON record. If the old record has fields that v's type does not
// have, another release has written them, and they are kept.
func writeRecord(dir *os.Root, name string, v any) error {
	b, err := plainjson.Encode(v)
	if err == nil {
		var old []byte
		if old, err = dir.ReadFile(name); err == nil {
			b, err = keepUnknown(b, old, reflect.TypeOf(v))
		} else if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s/%s: %w", dir.Name(), name, err)
	}
	return replaceFile(dir, name, b)
}

// replaceFile replaces a file, so that a reader sees either the old or the new content. It
// does not fsync, because pod state does not have to survive a reboot. Callers must not
// replace one file concurrently.
//
// The old file is exchanged for the new one and kept as a spare for the next time. This is
// fast on ext4: a rename over an existing file writes the new file to the disk at once, and
// without a journal ext4 searches for every new inode among all inodes that were freed in
// the last minutes.
func replaceFile(dir *os.Root, name string, b []byte) error {
	spare := spareOf(name)
	if err := overwrite(dir, spare, b); err != nil {
		return err
	}
	parent, err := dir.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	fd := int(parent.Fd())
	err = unix.Renameat2(fd, filepath.Base(spare), fd, filepath.Base(name), unix.RENAME_EXCHANGE)
	if err == nil {
		return nil
	}
	return dir.Rename(spare, name) // the file does not exist yet, or the file system cannot exchange files
}

// spareOf returns the path of a file's spare.
func spareOf(name string) string {
	return filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".spare")
}

// overwrite writes a file that no other process reads.
func overwrite(dir *os.Root, name string, b []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Truncate(int64(len(b)))
	}
	return errors.Join(err, f.Close())
}

// createFile writes a new file. The error is fs.ErrExist if the file exists.
func createFile(dir *os.Root, name string, mode os.FileMode, b []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// keepUnknown adds fields of the object old to the object written: those that type t does
// not have, at every level that t describes.
func keepUnknown(written, old []byte, t reflect.Type) ([]byte, error) {
	known := fieldsOf(t)
	if known == nil {
		return written, nil
	}
	var now, before map[string]json.RawMessage
	if err := json.Unmarshal(old, &before); err != nil || before == nil {
		return written, nil // old has no fields to keep
	}
	if err := json.Unmarshal(written, &now); err != nil || now == nil {
		return written, err
	}
	for name, value := range before {
		field, ok := known[name]
		if !ok {
			now[name] = value
			continue
		}
		if now[name] == nil {
			continue
		}
		merged, err := keepUnknown(now[name], value, field)
		if err != nil {
			return nil, err
		}
		now[name] = merged
	}
	return json.Marshal(now)
}

// fieldsOf returns the JSON names of a struct's fields. It returns nil if t is no struct or
// has its own JSON encoding.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	names := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			for n, ft := range fieldsOf(f.Type) {
				names[n] = ft
			}
		case f.IsExported() && name != "":
			names[name] = f.Type
		}
	}
	return names
}
