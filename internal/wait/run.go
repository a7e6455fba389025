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

// Run runs the tests of a package, for its TestMain. Then it calls ends, which end the
// resources that the tests share, and returns the exit code. The code is 1 if all tests
// have passed and a goroutine is left. Run makes sure that the processes that tests start
// ignore no signal.
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

// handleIgnored gives children the default action of signals that this process was started
// to ignore, by nohup or as a background job of a script. Go's runtime leaves SIGHUP and
// SIGINT ignored in that case, even after signal.Reset. A signal that has a handler in this
// process has its default action in a child.
func handleIgnored() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

// goroutines returns the stacks of all goroutines, except the caller's and the one that
// os/signal starts and never ends.
func goroutines() []string {
	others := strings.Split(strings.TrimSpace(string(stacks())), "\n\n")[1:]
	return slices.DeleteFunc(others, func(stack string) bool { return strings.Contains(stack, "\nos/signal.loop(") })
}
