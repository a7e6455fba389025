package manager

import (
	"context"
	"fmt"
	stdlog "log"
	"sync/atomic"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/config"
)

// setLog sends the log to descriptor 2, where `start` has opened the fifo that containerd
// reads.
func setLog(ctx context.Context, b *Bootstrap) context.Context {
	_ = unix.SetNonblock(unix.Stderr, true)
	w := &logWriter{fd: unix.Stderr}
	stdlog.SetOutput(w)
	log.L.Logger.SetOutput(w)
	_ = log.SetFormat(log.TextFormat)
	if err := log.SetLevel(b.LogLevel); err != nil {
		_ = log.SetLevel("info")
	}
	return log.WithLogger(ctx, log.L.WithFields(log.Fields{
		"runtime":   config.RuntimeName(b.Asked.Type),
		"namespace": b.Namespace,
		"group":     b.Group,
	}))
}

// logWriter never waits and never fails, because a log without a reader must not stop the
// server (requirements.md#N3). It drops lines that do not fit into the fifo, and writes
// their number before the next line that fits. os.Stderr would wait for a reader.
type logWriter struct {
	fd      int
	dropped atomic.Int64
}

// Write always returns len(line).
func (w *logWriter) Write(line []byte) (int, error) {
	if n := w.dropped.Swap(0); n > 0 {
		if !w.write(fmt.Appendf(nil, "level=warning msg=\"%d lines of the log were dropped\"\n", n)) {
			w.dropped.Add(n)
		}
	}
	if !w.write(line) {
		w.dropped.Add(1)
	}
	return len(line), nil
}

func (w *logWriter) write(b []byte) bool {
	for {
		n, err := unix.Write(w.fd, b)
		if err != unix.EINTR {
			return err == nil && n == len(b)
		}
	}
}
