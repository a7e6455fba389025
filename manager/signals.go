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

// signals are those that a server has an opinion on.
type signals struct {
	terminate chan os.Signal
	dump      chan os.Signal
	ignored   chan os.Signal
}

// notifySignals begins to receive. SIGPIPE is caught and dropped: if it were
// ignored, every hook and logger that the server executes would ignore it, too.
func notifySignals() *signals {
	s := &signals{
		terminate: make(chan os.Signal, 1),
		dump:      make(chan os.Signal, 1),
		ignored:   make(chan os.Signal, 1),
	}
	signal.Notify(s.terminate, unix.SIGTERM, unix.SIGINT)
	signal.Notify(s.dump, unix.SIGUSR1)
	signal.Notify(s.ignored, unix.SIGPIPE)
	return s
}

// stop keeps SIGPIPE caught: the process has not ended yet.
func (s *signals) stop() {
	signal.Stop(s.terminate)
	signal.Stop(s.dump)
}

// dumpStacks logs what every goroutine is doing, one line each, so that a full
// log loses lines and not the end of everything.
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
