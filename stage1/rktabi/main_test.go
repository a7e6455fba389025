package rktabi

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/image"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/immutable/launch"
)

// patience is how long a test waits for what is certain to happen on a machine
// that is not broken, however slow.
const patience = 30 * time.Second

// children is the bookkeeping of the test process, of which there can be one.
var children *proc.Children

// TestMain runs the tests, after which no goroutine and no process may be left.
func TestMain(m *testing.M) {
	if launch.Asked(os.Args) {
		os.Exit(launch.Main())
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	if err := proc.SetSubreaper(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	before := runtime.NumGoroutine()
	children = proc.NewChildren()
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := children.Close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	// os/signal keeps one goroutine for good once it was used.
	if !eventually(func() bool { return runtime.NumGoroutine() <= before+1 }) && code == 0 {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", buf[:runtime.Stack(buf, true)])
		code = 1
	}
	return code
}

func eventually(f func() bool) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return false
}

func openStore(t testing.TB) *image.Store {
	t.Helper()
	s, err := image.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
