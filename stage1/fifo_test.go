package stage1

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/stage1test"
)

// openPipes counts this process's descriptors that are ends of pipes.
func openPipes(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// requirements.md#T1: containerd's suites count a shim's
func TestAPodAtRestHoldsNoPipe(t *testing.T) {
	p := newFakePod(t, stage1test.Scripts{abi.Run: `echo words >&2; ready $$; exec sleep 1000`})
	before := openPipes(t)
	p.run(t, p.call(abi.Run))
	if after := openPipes(t); after != before {
		t.Errorf("%d pipes are open, %d were before the pod", after, before)
	}
	if _, err := os.Lstat(filepath.Join(p.dir, ".fifo")); err == nil {
		t.Error("the fifo has kept its name")
	}
}
