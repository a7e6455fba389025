package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/pod/bundlefile"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// loggersDir is a directory in an app's bundle. It has a file for every logger that
// runs for the app or for one of its execs, named after its pid.
const loggersDir = bundlefile.Loggers

// Limits of a logger whose shim has died. The logger may need some time to end by itself,
// because its app was killed and its input has ended. All loggers together get the rest
// of endLoggersBudget, but at least minLoggerWait and at most maxLoggerWait, because
// containerd gives `delete` five seconds in all.
const (
	minLoggerWait    = 300 * time.Millisecond
	maxLoggerWait    = time.Second
	endLoggersBudget = 2500 * time.Millisecond
)

// recordLogger writes a note of a logger that this process has started into a bundle, so
// that `delete` can end the logger if the shim is killed. A logger that has ended already
// gets no note.
func recordLogger(bundle string, pid int) error {
	start, err := proc.StartTime(pid)
	if errors.Is(err, proc.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(bundle, loggersDir), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.WriteFile(loggerRecord(bundle, pid), fmt.Appendf(nil, "%d %d\n", start, os.Getpid()), 0o600)
}

// forgetLogger removes the note of a logger. It ignores errors, because the bundle may be
// gone.
func forgetLogger(bundle string, pid int) { _ = os.Remove(loggerRecord(bundle, pid)) }

func loggerRecord(bundle string, pid int) string {
	return filepath.Join(bundle, loggersDir, strconv.Itoa(pid))
}

// EndLoggers ends the loggers of a container whose shim has died. `delete` has killed the
// container's processes before; took is how long that took. So the input of the loggers has
// ended, and most of them end by themselves. EndLoggers sends SIGTERM to the others and
// does not wait for their end, because `delete` has no time for that. It leaves the loggers
// of a live shim alone. For a bundle without loggers it only reads a directory.
func EndLoggers(ctx context.Context, bundle string, took time.Duration) error {
	list, err := os.ReadDir(filepath.Join(bundle, loggersDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("loggers of %s: %w", bundle, err)
	}
	ctx, cancel := context.WithTimeout(ctx, min(max(endLoggersBudget-took, minLoggerWait), maxLoggerWait))
	defer cancel()
	for _, f := range list {
		p := openRecorded(bundle, f.Name())
		if p == nil {
			continue
		}
		if p.Wait(ctx) != nil {
			_ = p.Signal(syscall.SIGTERM) // it may have ended meanwhile
		}
		_ = p.Close()
	}
	return nil
}

// openRecorded opens the logger that a record names. It returns nil if the logger has
// ended, or if its parent is still the shim that started it.
func openRecorded(bundle, name string) *proc.Process {
	pid, err := strconv.Atoi(name)
	if err != nil {
		return nil
	}
	text, err := os.ReadFile(loggerRecord(bundle, pid))
	if err != nil {
		return nil
	}
	var start uint64
	var shim int
	if _, err := fmt.Sscanf(string(text), "%d %d\n", &start, &shim); err != nil || start == 0 {
		return nil
	}
	p, err := proc.Open(pid, start)
	if err != nil {
		return nil
	}
	if parent, err := proc.Parent(pid); err != nil || parent == shim {
		_ = p.Close()
		return nil
	}
	return p
}
