package shim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// patience is how long a test waits for something that is certain to happen on
// a machine that is not broken, however slow.
const patience = 30 * time.Second

// children is the bookkeeping of the test process, of which there can be one.
var children *proc.Children

// TestMain runs the tests, or with RKT_TEST_LOGGER a logger. After the tests no
// goroutine may be left.
func TestMain(m *testing.M) {
	if how := os.Getenv("RKT_TEST_LOGGER"); how != "" && len(os.Args) > 1 && os.Args[1] == "logger" {
		os.Exit(loggerMain(how, os.Args[1:]))
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
	if left, ok := settle(func() int { return runtime.NumGoroutine() }, before+1); !ok && code == 0 {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "%d goroutines at the start, %d at the end:\n%s\n", before, left, buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

// settle waits until count is at most limit.
func settle(count func() int, limit int) (last int, ok bool) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if last = count(); last <= limit {
			return last, true
		}
		if time.Now().After(end) {
			return last, false
		}
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// within fails the test unless the channel is closed or delivers in time.
func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		buf := make([]byte, 1<<20)
		t.Fatalf("not within %s: %s\n%s", patience, what, buf[:runtime.Stack(buf, true)])
		panic("unreachable")
	}
}

// checkFDs fails the test if it leaves descriptors open (requirement I9).
func checkFDs(t *testing.T) {
	t.Helper()
	before := openFDs(t)
	t.Cleanup(func() {
		if _, ok := settle(func() int { return len(openFDs(t)) }, len(before)); !ok {
			t.Errorf("descriptors before: %s\nafter: %s", strings.Join(before, " "), strings.Join(openFDs(t), " "))
		}
	})
}

func openFDs(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var fds []string
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil || strings.HasSuffix(to, "/fd") { // the directory's own
			continue
		}
		// The runtime's poller makes these two when it is first needed.
		if strings.Contains(to, "eventpoll") || strings.Contains(to, "eventfd") {
			continue
		}
		fds = append(fds, e.Name()+"="+to)
	}
	return fds
}
