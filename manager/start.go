package manager

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
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
	r, err := early.ParseRequest(input, f, os.Getenv)
	if err != nil {
		return err
	}
	bundle, err := f.BundleDir()
	if err != nil {
		return err
	}
	h := r.Handover(bundle, nil)
	defer func() {
		if refusal := (*early.Refusal)(nil); err != nil && !(errors.As(err, &refusal) && refusal.Kept) {
			p.failed(h, err)
		}
	}()
	o, err := runtimeOptions(r.Extensions)
	if err != nil {
		return err
	}
	if h.Annotations, err = early.AnnotationsOf(bundle); err != nil {
		return err
	}
	if h.Group, err = early.GroupOf(h.Annotations, r.ID); err != nil {
		return err
	}
	if h.Socket, err = early.SocketPath(r.SocketDir, r.Address, r.Namespace, h.Group); err != nil {
		return err
	}
	if err := r.RecordSocket(bundle, h.Socket); err != nil {
		return err
	}
	c, err := early.ClaimSocket(h.Socket)
	if err != nil {
		return err
	}
	if c.Listener != nil {
		if err := p.serveNew(argv0, o.ShimCgroup, h, c.Listener); err != nil {
			c.Undo()
			return err
		}
	}
	c.Release()
	_, err = stdout.Write(r.Answer(h.Socket))
	return err
}

// serveNew starts the server of a pod that has none, in a cgroup if that is not empty.
func (p *Program) serveNew(argv0, cgroup string, h *early.Handover, listener *os.File) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	s := early.Server{Path: self, Argv0: argv0}
	if cgroup != "" {
		if h.Cgroups, err = p.Cgroups(); err != nil {
			return err
		}
		s.Cgroup = func(sys *syscall.SysProcAttr) error {
			if err := joinCgroup(cgroup, sys); err != nil {
				return fmt.Errorf("shim cgroup %s: %w", cgroup, err)
			}
			return nil
		}
	}
	// Descriptors that containerd left open must not stay open in the server.
	proc.SealDescriptors()
	err = s.Start(h, listener)
	if refusal := (*early.Refusal)(nil); err == nil || errors.As(err, &refusal) {
		return err
	}
	return fmt.Errorf("start server: %w", err)
}

// failed keeps a record of a `start` that has failed.
func (p *Program) failed(h *early.Handover, err error) {
	if p.Failed != nil {
		p.Failed(FailedStart{h.Address, h.Namespace, h.ID, h.Bundle, err})
	}
}
