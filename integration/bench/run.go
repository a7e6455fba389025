package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/image"
)

// measureRun measures ctr from its start to its end.
func measureRun(ctx context.Context, b *bench) error {
	return b.alternate(ctx, "ctr run --rm", b.samples, func(ctx context.Context, s subject, record recorder) error {
		cmd := b.daemon.Ctr(ctx, "run", "--rm", "--runtime", s.runtime, "--fifo-dir", b.fifoDir(), image.BusyboxName, b.id(s), "true")
		// ctr must not get the terminal's interrupt; this program handles it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		begin := time.Now()
		out, err := cmd.CombinedOutput()
		record(opRun, milliseconds(begin))
		if err != nil {
			return fmt.Errorf("ctr run: %w: %s", err, out)
		}
		return b.awaitQuiet(ctx)
	})
}
