package pod

import (
	"context"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint16 }

// NewSize returns a size that a terminal can have. The kernel has 16 bits for each number. For any
// other size NewSize returns errdefs.ErrInvalidArgument.
func NewSize(width, height uint64) (Size, error) {
	if width > math.MaxUint16 || height > math.MaxUint16 {
		return Size{}, fmt.Errorf("a terminal has at most %d columns and lines, and not %d x %d: %w", math.MaxUint16, width, height, errdefs.ErrInvalidArgument)
	}
	return Size{uint16(width), uint16(height)}, nil
}

// checkConsole refuses a process's consoleSize that no terminal can have.
func checkConsole(p *specs.Process) error {
	if p.ConsoleSize == nil {
		return nil
	}
	if _, err := NewSize(uint64(p.ConsoleSize.Width), uint64(p.ConsoleSize.Height)); err != nil {
		return fmt.Errorf("process.consoleSize: %w", err)
	}
	return nil
}

// Stdio moves the data of an app's or exec's streams between its client and its
// process. Package shim implements it.
type Stdio interface {
	// Files returns the files that the process inherits as 0, 1 and 2. nil
	// stands for /dev/null. With a terminal all three are nil.
	Files() [3]*os.File
	// Begin is called once, when the process exists. It closes this process's
	// copies of Files and starts to move data. console is the pty master, or
	// nil. Begin takes ownership of it, even if it fails.
	Begin(console *os.File) error
	// CloseStdin ends the process's input after the data that the client has
	// already written. It may be called in any state, and more than once.
	CloseStdin() error
	// Resize sets the terminal's size. Before Begin the size is kept for the
	// console.
	Resize(Size) error
	// Settle waits until the client has read what the process had written when it ended, until
	// a second after that end at most, or until ctx ends.
	Settle(ctx context.Context, end time.Time)
	// Drain returns when all output has been delivered, or when ctx ends.
	Drain(ctx context.Context)
	// Close releases everything. It may be called at any time, even without
	// Begin, and is idempotent.
	Close() error
}
