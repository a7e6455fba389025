package supervisor

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func TestMain(m *testing.M) { os.Exit(wait.Run(m)) }

const busybox = "/bin/busybox"

// hooked returns a supervisor that runs hooks, in a process that inherits orphans.
func hooked(t *testing.T) *Supervisor {
	t.Helper()
	if _, err := os.Stat(busybox); err != nil {
		t.Skip("needs a static busybox at " + busybox)
	}
	if err := proc.SetSubreaper(); err != nil {
		t.Fatal(err)
	}
	s := &Supervisor{Options: Options{Children: proc.NewChildren()}}
	t.Cleanup(func() {
		if err := s.Children.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ours lists the children of this process.
func ours(t *testing.T) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, file := range files {
		b, _ := os.ReadFile(file) // a thread may end
		for _, s := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(s)
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestAHookThatLeavesADaemonBehindHasAnEnd(t *testing.T) {
	s := hooked(t)
	marker := filepath.Join(t.TempDir(), "pid")
	err := s.runHook(context.Background(), hook("echo said >&2; sleep 1000 & echo $! >"+marker+"; exit 4"), "/", nil)
	if err == nil || err.Error() != "exit status 4: said" {
		t.Errorf("error %v", err)
	}
	for _, pid := range ours(t) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	wait.Until(t, "the end of the daemon", func() bool { return len(ours(t)) == 0 })
}

func TestTheEndOfAHooksOutputIsKept(t *testing.T) {
	s := hooked(t)
	err := s.runHook(context.Background(), hook("i=0; while [ $i -lt 9000 ]; do echo line $i; i=$((i+1)); done; exit 1"), "/", nil)
	if err == nil || !strings.HasSuffix(err.Error(), "line 8998\nline 8999") || len(err.Error()) > maxHookOutput+100 {
		t.Errorf("error %.80q", err)
	}
}
