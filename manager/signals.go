package manager

import (
	"bytes"
	"context"
	"os"
	"os/signal"
	"runtime"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// signals are the signals that a server handles.
type signals struct {
	terminate chan os.Signal
	dump      chan os.Signal
}

// notifySignals starts to receive signals. It catches SIGPIPE and drops it. If SIGPIPE
// were ignored instead, hooks and loggers that the server executes would inherit that.
func notifySignals() *signals {
	s := &signals{
		terminate: make(chan os.Signal, 1),
		dump:      make(chan os.Signal, 1),
	}
	signal.Notify(s.terminate, unix.SIGTERM, unix.SIGINT)
	signal.Notify(s.dump, unix.SIGUSR1)
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return s
}

// stop stops receiving the signals, except SIGPIPE, which must not end the process.
func (s *signals) stop() {
	signal.Stop(s.terminate)
	signal.Stop(s.dump)
}

// dumpStacks logs the stack of each goroutine in a line of its own, so that a full log
// loses single stacks, not the whole dump.
func dumpStacks(ctx context.Context) {
	const most = 1 << 20
	stacks := make([]byte, 32<<10)
	n := runtime.Stack(stacks, true)
	for n == len(stacks) && n < most {
		stacks = make([]byte, 2*len(stacks))
		n = runtime.Stack(stacks, true)
	}
	log.G(ctx).Info("=== BEGIN goroutine stack dump ===")
	for stack := range bytes.SplitSeq(stacks[:n], []byte("\n\n")) {
		log.G(ctx).Info(string(stack))
	}
	log.G(ctx).Info("=== END goroutine stack dump ===")
}
