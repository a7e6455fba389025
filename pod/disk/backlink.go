package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// backlink is the rkt.json in the bundle of a container or sandbox. It names the pod
// and its app; for a sandbox the name of the app is empty. If containerd has removed
// the bundle, or has made it again for a later container with the same id, the methods
// do nothing.
type backlink struct {
	bundle, pod string
	app         AppName
}

// with calls f with the bundle and its record, if the record names this app.
func (b backlink) with(f func(bundle handle, r bundleRecord) error) error {
	bundle, err := openHandle(b.bundle)
	if err == nil {
		defer bundle.close()
		var r bundleRecord
		if err = bundle.record(bundleFile, &r); err == nil && r.Pod == b.pod && r.App == b.app {
			err = f(bundle, r)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// kept reports whether the record is still there: then containerd will call `delete`
// for it.
func (b backlink) kept() (kept bool, err error) {
	err = b.with(func(handle, bundleRecord) error {
		kept = true
		return nil
	})
	return kept, err
}

// unmount unmounts the root file system in the bundle. If the bundle was made again
// for a later container with the same id, it is that container's, and unmount does
// nothing.
func (b backlink) unmount() error {
	if kept, err := b.kept(); err != nil || !kept {
		return err
	}
	return unmountTree(filepath.Join(b.bundle, "rootfs"))
}

// recordExit adds an exit to the record, and returns that of the record, which another `delete` may have added before.
func (b backlink) recordExit(exit *exitRecord) (recorded *exitRecord, err error) {
	recorded = exit
	err = b.with(func(_ handle, r bundleRecord) error {
		if r.Exit != nil {
			recorded = r.Exit
			return nil
		}
		r.Exit = exit
		return withRoot(b.bundle, func(bundle *os.Root) error { return writeRecord(bundle, bundleFile, r) })
	})
	return recorded, err
}

// remove removes the record.
func (b backlink) remove() error {
	return b.with(func(bundle handle, _ bundleRecord) error {
		return bundle.remove(".", spareOf(bundleFile), bundleFile)
	})
}
