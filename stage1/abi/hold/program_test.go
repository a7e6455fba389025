package hold_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi/hold"
)

func TestTheHoldersProgramReapsAndCannotBeStopped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
	program, err := hold.Program()
	if err != nil {
		t.Skip(err)
	}
	root := t.TempDir()
	if err := hold.Fill(root, program); err != nil {
		t.Fatal(err)
	}
	p, err := os.StartProcess(filepath.Join(root, "hold"), []string{"/hold"}, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill(); _, _ = p.Wait() })
	// What this process ignores it does, too.
	const sigchld = 1 << (syscall.SIGCHLD - 1)
	ignored := func() uint64 {
		set, err := strconv.ParseUint(procStatus(t, p.Pid, "SigIgn"), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	for deadline := time.Now().Add(30 * time.Second); ignored()&sigchld == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("signals that it ignores: %x, want SIGCHLD", ignored())
		}
	}
	if s := procStatus(t, p.Pid, "State"); !strings.HasPrefix(s, "S") {
		t.Errorf("its state is %s", s)
	}
	if rss := procStatus(t, p.Pid, "RssAnon"); rss > "       8 kB" && len(rss) > 6 {
		t.Errorf("its own memory is %s", rss)
	}
}

func procStatus(t *testing.T, pid int, field string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no %s of process %d", field, pid)
	return ""
}
