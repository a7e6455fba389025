package wait

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// Run is for a TestMain: it runs the tests of a package, then ends what they share, and
// returns the exit code. Tests that have all passed fail after all if a goroutine is
// left then.
func Run(m *testing.M, ends ...func(context.Context) error) int {
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

// goroutines returns the stacks of all but the caller's goroutine and the one that
// os/signal keeps for good once it was used.
func goroutines() []string {
	others := strings.Split(strings.TrimSpace(string(stacks())), "\n\n")[1:]
	return slices.DeleteFunc(others, func(stack string) bool { return strings.Contains(stack, "\nos/signal.loop(") })
}
