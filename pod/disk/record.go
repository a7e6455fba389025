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

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// recordVersion is the version of every record; docs/layout.md has the rules.
const recordVersion = 1

// Names of the records.
const (
	shimFile   = "shim.json"
	appFile    = "app.json"
	bundleFile = "rkt.json"
)

// shimRecord is $pod/shim.json.
type shimRecord struct {
	Version   int           `json:"version"`
	BootID    string        `json:"bootID"`
	Daemon    string        `json:"daemon"`
	Namespace string        `json:"namespace"`
	Sandbox   string        `json:"sandbox"`
	Shim      processRecord `json:"shim"`
	// Cgroups are those of the daemon, by controller, when the shim was started. Relative
	// paths of cgroups are relative to them.
	Cgroups    map[string]string `json:"cgroups,omitempty"`
	Stage1     Stage1Record      `json:"stage1"`
	Supervisor *SupervisorRecord `json:"supervisor,omitempty"`
}

type processRecord struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
}

// Stage1Record names a stage1 image, and says why the pod has it.
type Stage1Record struct {
	Name    string   `json:"name"`
	Digest  string   `json:"digest"`
	By      string   `json:"by,omitempty"`      // what has chosen it: docs/config.md
	Excused []string `json:"excused,omitempty"` // fields of config.json that it may ignore
}

// SupervisorRecord is the process of `run`.
type SupervisorRecord struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"starttime"`
	Leader    int    `json:"leader,omitempty"` // the pid that it reported
}

// AppRecord is what stage 0 knows of an app, as $pod/appsinfo/APP/app.json keeps
// it.
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
	Unknown    []string        `json:"unknown,omitempty"` // fields of config.json that are ignored, because no spec has them
}

// poststopRecord is what poststop hooks need when the spec may be gone.
type poststopRecord struct {
	OCIVersion  string            `json:"ociVersion"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Hooks       []specs.Hook      `json:"hooks"`
}

// bundleRecord is $bundle/rkt.json. One without an app is that of a sandbox.
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

// withRoot opens a directory for a moment.
func withRoot(path string, f func(*os.Root) error) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return f(root)
}

// checked is a record of which can be told whether a shim can have written it. By what
// records say, processes are killed, and directories unmounted and removed.
type checked interface {
	check() error
}

// readRecord reads a JSON record. The error is fs.ErrNotExist if the file does not exist, and
// errdefs.ErrDataLoss if it is not as a shim writes it.
func readRecord(dir *os.Root, name string, v any) error {
	b, err := dir.ReadFile(name)
	if err != nil {
		return err
	}
	err = json.Unmarshal(b, v)
	if r, ok := v.(checked); ok && err == nil {
		err = r.check()
	}
	if err != nil {
		return errDamaged(dir, name, err)
	}
	return nil
}

// errDamaged is the error for a record that is not used, because its pids and paths may be
// those of other processes and files.
func errDamaged(dir *os.Root, name string, why error) error {
	return fmt.Errorf("%s is damaged: %w: correct it, or end what is left of the container and remove the file: %w",
		filepath.Join(dir.Name(), name), why, errdefs.ErrDataLoss)
}

// writeRecord replaces a JSON record. Fields of the old one that v's
// type does not know were written by another release and are kept.
func writeRecord(dir *os.Root, name string, v any) error {
	b, err := json.Marshal(v)
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

// replaceFile replaces a file, so that a reader sees all of it or the old one.
// It is not fsynced: pod state does not outlive the kernel. Writers of one file
// take turns.
//
// The old file is exchanged for the new one and kept as a spare for the next
// time. That matters on ext4: a rename over a file writes the new one out at
// once, and without a journal every new inode is searched for among all that
// were deleted in the last minutes.
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
	return dir.Rename(spare, name) // it is not there yet, or the file system cannot exchange
}

// spareOf returns where a file's spare is.
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

// createFile writes a file that is not there yet. The error is fs.ErrExist if
// it is.
func createFile(dir *os.Root, name string, mode os.FileMode, b []byte) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// keepUnknown adds to the object written those fields of the object old that
// type t has no name for, at every level that t describes.
func keepUnknown(written, old []byte, t reflect.Type) ([]byte, error) {
	known := fieldsOf(t)
	if known == nil {
		return written, nil
	}
	var now, before map[string]json.RawMessage
	if err := json.Unmarshal(old, &before); err != nil || before == nil {
		return written, nil // nothing in it that could be kept
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

// fieldsOf returns the JSON names of a struct's fields, or nil if t is something
// else or has a text of its own.
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
