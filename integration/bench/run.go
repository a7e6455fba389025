package main

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// measureRun measures ctr from its start to its end.
func measureRun(ctx context.Context, b *bench) error {
	return b.alternate(ctx, "ctr run --rm", b.samples, func(ctx context.Context, s subject, record recorder) error {
		return b.measureCtr(ctx, s, opRun, opRunCPU, record)
	})
}

func (b *bench) measureCtr(ctx context.Context, s subject, took, cpu operation, record recorder) error {
	args := []string{"run", "--rm", "--runtime", s.runtime, "--fifo-dir", b.fifoDir()}
	if s.binary != "" && s.runtime != runcShim {
		return nil // ctr names an OCI runtime to runc's shim only
	}
	if s.binary != "" {
		args = append(args, "--runc-binary", s.binary)
	}
	cmd := b.daemon.Ctr(ctx, append(args, image.BusyboxName, b.id(s), "true")...)
	// ctr must not get the terminal's interrupt; this program handles it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	used, err := b.meter.settled(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := b.meter.take(cmd.Process.Pid); err != nil {
		return err
	}
	err = cmd.Wait()
	record(took, milliseconds(begin))
	if err != nil {
		return fmt.Errorf("ctr run: %w: %s", err, &out)
	}
	if err := b.awaitQuiet(ctx); err != nil {
		return err
	}
	_, err = b.spent(ctx, cpu, used, record)
	return err
}
