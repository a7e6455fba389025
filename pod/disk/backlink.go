package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// backlink is the rkt.json in the bundle of a container or sandbox. It names the pod
// and its app, or with no name its sandbox. containerd may have removed the bundle, or
// made it anew for another of the same id: then it is left alone.
type backlink struct {
	bundle, pod string
	app         AppName
}

// with calls f with the bundle and the record in it, if it is still the app's.
func (b backlink) with(f func(bundle *os.Root, r bundleRecord) error) error {
	err := withRoot(b.bundle, func(bundle *os.Root) error {
		var r bundleRecord
		if err := readRecord(bundle, bundleFile, &r); err != nil || r.Pod != b.pod || r.App != b.app {
			return err
		}
		return f(bundle, r)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// kept reports whether it is still there: then a `delete` will come for it.
func (b backlink) kept() bool {
	kept := false
	err := b.with(func(*os.Root, bundleRecord) error {
		kept = true
		return nil
	})
	return err == nil && kept
}

// unmount unmounts the root file system in the bundle. In a bundle that was made anew
// for another container of the same id, that is the other one's.
func (b backlink) unmount() error {
	if !b.kept() {
		return nil
	}
	return unmountTree(filepath.Join(b.bundle, "rootfs"))
}

// recordExit adds an exit to it.
func (b backlink) recordExit(exit *exitRecord) error {
	return b.with(func(bundle *os.Root, r bundleRecord) error {
		r.Exit = exit
		return writeRecord(bundle, bundleFile, r)
	})
}

// remove removes it.
func (b backlink) remove() error {
	return b.with(func(bundle *os.Root, _ bundleRecord) error {
		if err := bundle.Remove(spareOf(bundleFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return bundle.Remove(bundleFile)
	})
}
