package conformance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// keepPods links files of the trial's pods into the trial's directory, before the pods are
// removed: the journal, to which lines may still be added, and the stage1's files below
// rkt/.
func (t *trial) keepPods() error {
	var err error
	for _, pod := range t.podDirs() {
		err = errors.Join(err, keepFiles(pod, filepath.Join(t.dir, "pods", filepath.Base(pod))))
	}
	return err
}

func keepFiles(pod, to string) error {
	return filepath.WalkDir(pod, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // the file is gone
		}
		name, _ := filepath.Rel(pod, path)
		if d.IsDir() && strings.HasPrefix(name, stage1.RootfsDir+"/") && !strings.HasPrefix(name+"/", stage1.RktDir+"/") {
			return filepath.SkipDir // the image
		}
		if !d.Type().IsRegular() || strings.HasPrefix(name, stage1.RootfsDir+"/") && !strings.HasPrefix(name, stage1.RktDir+"/") {
			return nil
		}
		kept := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(kept), 0o700); err != nil {
			return err
		}
		err = os.Link(path, kept)
		if errors.Is(err, unix.EXDEV) { // the file is in a mount on rkt/
			return copyFile(path, kept)
		}
		return err
	})
}

// Kept returns the directory with the files of checks that have failed, or "" if there are none.
// Close leaves the directory if it was made because Config.Keep is set.
func (k *Kit) Kept() string {
	if kept, err := os.ReadDir(k.config.KeepIn); err != nil || len(kept) == 0 {
		return ""
	}
	return k.config.KeepIn
}

// keep moves the trial's directory to where failed checks are kept, and returns its new path.
func (t *trial) keep(check string) (string, error) {
	kept := filepath.Join(t.config.KeepIn, strings.ReplaceAll(check, "/", "-"))
	return kept, os.Rename(t.dir, kept)
}
