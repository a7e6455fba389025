// Package removal waits until a server has removed the pod of a bundle, without the rest of
// pod/disk: the program that containerd executes must not link that.
package removal

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/bundlefile"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// Names below the data directory: of the pods, of the directories of those that run and that are
// removed, and of a pod's file that is locked during its removal.
const (
	Pods   = "pods"
	Run    = "run"
	Exited = "exited-garbage"
	Lock   = "pod.lck"
)

// record has the fields of rkt.json that matter here.
type record struct {
	DataDir string          `json:"dataDir"`
	Pod     string          `json:"pod"`
	Exit    json.RawMessage `json:"exit"`
}

// Await waits until no process holds the lock of the pod that the record in a bundle names: a
// server that removes the pod holds it, and removes the record at last. Await returns at once if
// the pod's directory is not there, or if the record has an exit, which is the answer to `delete`.
func Await(ctx context.Context, bundle string) error {
	text, err := proc.ReadFile(filepath.Join(bundle, bundlefile.Record))
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	if len(r.Exit) > 0 || r.Pod == "" || r.Pod != filepath.Base(r.Pod) {
		return nil
	}
	for _, state := range []string{Run, Exited} {
		dir, err := os.OpenRoot(filepath.Join(r.DataDir, Pods, state, r.Pod))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		defer dir.Close()
		lock, err := dir.OpenFile(Lock, os.O_RDWR|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := proc.FlockUntil(ctx, lock, unix.LOCK_EX); err != nil {
			return err // it has closed the file
		}
		return lock.Close()
	}
	return nil
}
