package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// children is the bookkeeping of the test process, of which there can be one.
var children *proc.Children

// TestMain runs the tests, or with RKT_TEST_LOGGER a logger. After the tests no
// goroutine may be left.
func TestMain(m *testing.M) {
	if how := os.Getenv("RKT_TEST_LOGGER"); how != "" && len(os.Args) > 1 && os.Args[1] == "logger" {
		os.Exit(loggerMain(how, os.Args[1:]))
	}
	children = proc.NewChildren()
	os.Exit(wait.Run(m, children.Close))
}

// checkFDs fails the test if it leaves descriptors open (requirements.md#I9).
func checkFDs(t *testing.T) {
	t.Helper()
	before := openFDs(t)
	t.Cleanup(func() {
		wait.Observe(t, "as few descriptors are open as before: "+strings.Join(before, " "), func() (bool, string) {
			now := openFDs(t)
			return len(now) <= len(before), strings.Join(now, " ")
		})
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
