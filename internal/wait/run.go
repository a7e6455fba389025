package wait

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Run is for a TestMain: it runs the tests of a package, then ends what they share, and
// returns the exit code. Tests that have all passed fail after all if a goroutine is
// left then. The processes that tests start have the default action of every signal.
func Run(m *testing.M, ends ...func(context.Context) error) int {
	handleIgnored()
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	for _, end := range ends {
		if err := end(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code == 0 && !within(Patience, func() bool { return len(goroutines()) == 0 }) {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n\n%s\n", strings.Join(goroutines(), "\n\n"))
		code = 1
	}
	return code
}

// handleIgnored sees to it that children do not ignore what this process was started
// to ignore, by nohup or in the background of a script. Go's runtime leaves these two
// signals ignored then, also after signal.Reset; one that has a handler here has its
// default action in a child.
func handleIgnored() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// goroutines returns the stacks of all but the caller's goroutine and the one that
// os/signal keeps for good once it was used.
func goroutines() []string {
	others := strings.Split(strings.TrimSpace(string(stacks())), "\n\n")[1:]
	return slices.DeleteFunc(others, func(stack string) bool { return strings.Contains(stack, "\nos/signal.loop(") })
}
