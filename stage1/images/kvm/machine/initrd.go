package machine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine/cpio"
)

// Names in the root of QEMU. The machine's initramfs has the same name in its directory.
const (
	kernel = "kernel"
	initrd = "initrd"
)

// makeInitrd makes the machine's initramfs. That of a restored machine is empty: its guest has read it before it was saved.
func (m *machine) makeInitrd(empty bool) error {
	archive, err := os.OpenFile(filepath.Join(m.config.Dir, initrd), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if !empty {
		err = writeInitrd(archive, m.config.Modules, m.config.Init)
	}
	return errors.Join(err, archive.Close())
}

// writeInitrd writes an initramfs: the archive of modules, followed by one that has only /init.
func writeInitrd(to io.Writer, modules, init string) error {
	archive, err := os.Open(modules)
	if err != nil {
		return err
	}
	defer archive.Close()
	n, err := io.Copy(to, archive)
	if err != nil {
		return fmt.Errorf("%s: %w", modules, err)
	}
	if n%4 != 0 {
		return fmt.Errorf("%s is no cpio archive: its size of %d is no multiple of four bytes", modules, n)
	}
	program, err := os.Open(init)
	if err != nil {
		return err
	}
	defer program.Close()
	info, err := program.Stat()
	if err != nil {
		return err
	}
	w := cpio.NewWriter(to)
	// It becomes the first process of containers, which may not read it.
	w.Program("init", info.Size(), program)
	return w.End()
}
