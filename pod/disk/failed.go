package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/datadir"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

// Limits of the records of failed starts: docs/layout.md.
const (
	failedDir    = "failed"
	failedTmp    = ".tmp-"
	failedMode   = 0o700
	failedMax    = 32                 // records
	failedAge    = 7 * 24 * time.Hour // after the last failure
	failedSize   = 32 << 10           // bytes of a record
	failedText   = 4096               // bytes of an error
	failedStarts = 8                  // starts that a record names
	failedCalls  = 32                 // calls that a record has
)

// FailedStart is a record in the directory failed: starts of pods or apps that failed for
// the same reason. It has no environments, no arguments, and of annotations only ours.
type FailedStart struct {
	Version   int    `json:"version"`
	Step      string `json:"step"` // that failed: one of the Step constants
	Daemon    string `json:"daemon,omitempty"`
	Namespace string `json:"namespace"`
	Error     string `json:"error"`
	// Count is the number of these failures. Starts are the last of them, the newest last.
	Count  int       `json:"count"`
	First  time.Time `json:"first"`
	Starts []Start   `json:"starts"`

	// The rest is of the newest one.
	Stage1      *Stage1Record     `json:"stage1,omitempty"` // without a digest if its image was not opened
	Annotations map[string]string `json:"annotations,omitempty"`
	Options     []string          `json:"options,omitempty"` // names of the runtime options that have arrived
	Calls       []journal.Entry   `json:"calls,omitempty"`
}

// Start is one start that failed.
type Start struct {
	Time   time.Time `json:"time"`
	ID     string    `json:"id"`            // of the container or sandbox
	Pod    string    `json:"pod,omitempty"` // UUID of the pod, if it had a directory
	Bundle string    `json:"bundle"`
	// Kubernetes is NAMESPACE/POD or NAMESPACE/POD/CONTAINER, if containerd's CRI has made
	// the container.
	Kubernetes string `json:"kubernetes,omitempty"`
}

// Steps of a start.
const (
	StepServer        = "start"          // before there is a server
	StepCreate        = "create"         // of an app
	StepStart         = "start app"      // an app that was created
	StepCreateSandbox = "create sandbox" // of containerd's Sandbox service
	StepStartSandbox  = "start sandbox"
)

// Last returns the newest of the starts.
func (f *FailedStart) Last() Start {
	if len(f.Starts) == 0 {
		return Start{}
	}
	return f.Starts[len(f.Starts)-1]
}

// Calls returns the last calls of the pod's journal that concern an app, or no app, without
// their arguments. It returns none if the journal cannot be read.
func (d *Dir) Calls(app string) []journal.Entry {
	entries, _ := journal.ReadIn(d.root)
	var calls []journal.Entry
	for _, e := range entries {
		if e.App == "" || e.App == app {
			calls = append(calls, e.WithoutArguments())
		}
	}
	return calls[max(0, len(calls)-failedCalls):]
}

// KeepFailure writes a record of a start that has failed to a data directory. The caller
// sets the step, the namespace, the error, and one start, and what it knows of the rest.
// KeepFailure keeps only our annotations, adds those of the bundle of the start, and removes texts of its config.json that may be secret from
// all texts of the record. If there is a record of the same failure, the start is added to
// it. Then the oldest records are removed, if there are too many.
func KeepFailure(dataDir string, f FailedStart) error {
	start := f.Last()
	bundle := readPrivate(start.Bundle)
	f.Version, f.Count, f.First = recordVersion, 1, start.Time
	start.Kubernetes, f.Annotations = bundle.kubernetes, ours(f.Annotations)
	maps.Copy(f.Annotations, bundle.ours)
	f.Starts = []Start{start}
	f.Error = firstOf(bundle.Redact(abi.Printable(f.Error)), failedText)
	for i := range f.Calls {
		f.Calls[i].Error = bundle.Redact(abi.Printable(f.Calls[i].Error))
	}
	dir := filepath.Join(dataDir, failedDir)
	err := datadir.Make(dataDir, datadir.Mode)
	if err == nil {
		err = datadir.Make(dir, failedMode)
	}
	if err == nil {
		err = withRoot(dir, func(root *os.Root) error { return f.keep(root) })
	}
	if err != nil {
		return fmt.Errorf("keep a record of the failed start of %s: %w", start.ID, err)
	}
	return nil
}

func (f *FailedStart) keep(root *os.Root) error {
	name := f.Name()
	if old, err := readFailure(root, name); err == nil {
		f.Count += old.Count
		f.First = old.First
		f.Starts = append(old.Starts, f.Starts...)
		f.Starts = f.Starts[max(0, len(f.Starts)-failedStarts):]
	}
	text, err := f.encode()
	if err != nil {
		return err
	}
	tmp := failedTmp + newUUID()
	err = createFile(root, tmp, 0o600, text)
	if err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return errors.Join(err, pruneFailures(root))
}

// Name returns the name of the record: it is the same for starts that have failed in the same
// way, whatever their ids are.
func (f *FailedStart) Name() string {
	s := f.Last()
	text := f.Error
	for _, id := range []string{s.Bundle, s.Pod, s.ID} {
		if id != "" {
			text = strings.ReplaceAll(text, id, "*")
		}
	}
	stage1 := ""
	if f.Stage1 != nil {
		stage1 = f.Stage1.Name
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{f.Daemon, f.Namespace, f.Step, stage1, text}, "\x00")))
	return hex.EncodeToString(sum[:8]) + ".json"
}

// encode returns the record as JSON, with as many of its last calls as there is room for.
func (f *FailedStart) encode() ([]byte, error) {
	for {
		text, err := json.Marshal(f)
		if err != nil || len(text) <= failedSize {
			return text, err
		}
		switch {
		case len(f.Calls) > 0:
			f.Calls = f.Calls[1:]
		case len(f.Starts) > 1:
			f.Starts = f.Starts[1:]
		default:
			return nil, fmt.Errorf("it has %d bytes", len(text))
		}
	}
}

// pruneFailures removes old records, and temporary files that killed processes have left.
func pruneFailures(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	var records []fs.FileInfo
	var errs []error
	remove := func(name string) {
		if err := root.Remove(name); !errors.Is(err, fs.ErrNotExist) { // another process may prune as well
			errs = append(errs, err)
		}
	}
	for _, e := range entries {
		st, err := e.Info()
		if err != nil {
			continue // another process has removed it
		}
		left := strings.HasPrefix(e.Name(), failedTmp) && time.Since(st.ModTime()) > time.Minute
		if left || time.Since(st.ModTime()) > failedAge {
			remove(e.Name())
		} else if !strings.HasPrefix(e.Name(), failedTmp) {
			records = append(records, st)
		}
	}
	slices.SortFunc(records, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, st := range records[min(len(records), failedMax):] {
		remove(st.Name())
	}
	return errors.Join(errs...)
}

// readFailure reads a record.
func readFailure(root *os.Root, name string) (*FailedStart, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, failedSize+1))
	if err != nil {
		return nil, err
	}
	f := &FailedStart{}
	if err := json.Unmarshal(text, f); err != nil || f.Version != recordVersion {
		return nil, errors.Join(fmt.Errorf("%s is not the record of a failed start", name), err)
	}
	return f, nil
}

// Failures returns the records of failed starts in a data directory, the newest first.
// Records that cannot be read are left out.
func Failures(dataDir string) ([]FailedStart, error) {
	var all []FailedStart
	err := withRoot(filepath.Join(dataDir, failedDir), func(root *os.Root) error {
		names, err := readNames(root.Name())
		for _, name := range names {
			if f, err := readFailure(root, name); err == nil && !strings.HasPrefix(name, failedTmp) {
				all = append(all, *f)
			}
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b FailedStart) int { return b.Last().Time.Compare(a.Last().Time) })
	return all, err
}
