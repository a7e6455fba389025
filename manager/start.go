package manager

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
)

// FailedStart is a `start` that could not start a server.
type FailedStart struct {
	Address, Namespace, ID string
	Bundle                 string
	Err                    error
}

// start finds or makes the server of the container's group and writes its address to
// stdout. A start that succeeds writes nothing else (requirements.md#B12).
func (p *Program) start(argv0 string, f *early.Flags, stdin *os.File, stdout io.Writer) (err error) {
	input, err := early.ReadStdin(stdin)
	if err != nil {
		return err
	}
	asked, err := early.ParseRequest(input, f, os.Getenv)
	if err != nil {
		return err
	}
	r := newRequest(asked)
	bundle, err := f.BundleDir()
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
	annotations, err := early.AnnotationsOf(bundle)
	if err != nil {
		return err
	}
	if r.Group, err = early.GroupOf(annotations, r.ID); err != nil {
		return err
	}
	if r.Socket, err = early.SocketPath(asked.SocketDir, r.Address, r.Namespace, r.Group); err != nil {
		return err
	}
	if err := asked.RecordSocket(bundle, r.Socket); err != nil {
		return err
	}
	// Descriptors that containerd left open must not stay open in the server.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)

	answer, err := asked.Answer(early.AddressPrefix + r.Socket)
	if err != nil {
		return err
	}
	c, err := early.ClaimSocket(r.Socket)
	if err != nil {
		return err
	}
	if c.Listener != nil {
		r.Asked.Annotations = annotations
		if err := p.serveNew(argv0, bundle, r, c.Listener); err != nil {
			c.Undo()
			return err
		}
	}
	c.Release()
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
