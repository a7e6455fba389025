package manager

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// socketDirLink and addressFile are names in the bundle. containerd and its other
// shims use the same ones.
const (
	socketDirLink = "s"
	addressFile   = "address"
)

// FailedStart is a `start` that could not start a server.
type FailedStart struct {
	Address, Namespace, ID string
	Bundle                 string
	Err                    error
}

// start finds or makes the server of the container's group and writes its address to
// stdout. A start that succeeds writes nothing else (requirements.md#B12).
func (p *Program) start(argv0 string, f *flags, stdin *os.File, stdout io.Writer) (err error) {
	input, err := readStdin(stdin)
	if err != nil {
		return err
	}
	r, err := parseRequest(input, f, os.Getenv)
	if err != nil {
		return err
	}
	bundle, err := f.bundleDir()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && p.Failed != nil {
			p.Failed(FailedStart{r.Address, r.Namespace, r.ID, bundle, err})
		}
	}()
	if err := r.applyOptions(argv0); err != nil {
		return err
	}
	annotations, err := annotationsOf(bundle)
	if err != nil {
		return err
	}
	if r.Group, err = groupOf(annotations, r.ID); err != nil {
		return err
	}
	if r.Socket, err = socketPath(r.socketDir, r.Address, r.Namespace, r.Group); err != nil {
		return err
	}
	if err := r.recordSocket(bundle); err != nil {
		return err
	}
	// Descriptors that containerd left open must not stay open in the server.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)

	answer, err := r.answer(addressPrefix + r.Socket)
	if err != nil {
		return err
	}
	c, err := claimSocket(r.Socket)
	if err != nil {
		return err
	}
	if c.listener != nil {
		r.Asked.Annotations = annotations
		if err := p.serveNew(argv0, bundle, r, c.listener); err != nil {
			c.undo()
			return err
		}
	}
	c.release()
	_, err = stdout.Write(answer)
	return err
}

// serveNew starts the server of a pod that has none.
func (p *Program) serveNew(argv0, bundle string, r *request, listener *os.File) error {
	var err error
	if r.Stage1, err = p.choose(r.Asked); err != nil {
		return err
	}
	if r.Cgroups, err = p.Cgroups(); err != nil {
		return err
	}
	if err := p.DataDir(); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if err := spawn(argv0, bundle, r, listener); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	return nil
}

func (f *flags) bundleDir() (string, error) {
	if f.bundle != "" {
		return filepath.Abs(f.bundle)
	}
	return os.Getwd()
}

// recordSocket writes the address of the socket into the bundle. `delete` needs it
// if containerd ended before it had stored the answer, and older releases of
// containerd reconnect by the file `address`.
func (r *request) recordSocket(bundle string) error {
	if r.socketDir != "" {
		link := filepath.Join(bundle, socketDirLink)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(filepath.Clean(r.socketDir), link); err != nil {
			return err
		}
	}
	if r.form == formProtobuf {
		return nil
	}
	tmp := filepath.Join(bundle, "."+addressFile)
	if err := os.WriteFile(tmp, []byte(addressPrefix+r.Socket), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(bundle, addressFile))
}
