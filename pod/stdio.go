package pod

import (
	"context"
	"os"
)

// Size is a terminal's size in characters.
type Size struct{ Width, Height uint16 }

// Stdio carries the streams of an app or of an exec between its client and its
// process. Package shim implements it.
type Stdio interface {
	// Files returns what the process inherits as 0, 1 and 2; nil stands for
	// /dev/null. With a terminal all three are nil.
	Files() [3]*os.File
	// Begin is called once, when the process exists: it closes this process's
	// copies of Files and starts to carry. console is the pty master, or nil;
	// Begin takes it over, also when it fails.
	Begin(console *os.File) error
	// CloseStdin ends the process's input after what is already on its way. It
	// may be called in any state, and more than once.
	CloseStdin() error
	// Resize sets the terminal's size. Before Begin it is kept for the console
	// that will come.
	Resize(Size) error
	// Drain returns when all output has been delivered, or with ctx.
	Drain(ctx context.Context)
	// Close gives everything back, at any moment, also without Begin. It is
	// idempotent.
	Close() error
}
