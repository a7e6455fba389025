package pod

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

func TestTheHoldersProgramReapsAndCannotBeStopped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
	root, err := newStore(t).holderRoot()
	if err != nil {
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

func TestAHolderHasNothingButTheNamespacesThatWereAskedFor(t *testing.T) {
	maps := []abi.IDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}}
	for name, c := range map[string]struct {
		s      abi.Sandbox
		proc   bool
		mapped bool
	}{
		"of its own":        {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "pid"}, {Type: "network", Path: "/run/netns/x"}}}, true, false},
		"the host's":        {abi.Sandbox{}, true, false},
		"new user":          {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user"}, {Type: "pid"}}, UIDMappings: maps, GIDMappings: maps}, true, true},
		"joined user":       {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user", Path: "/x"}, {Type: "pid"}}, UIDMappings: maps}, true, true},
		"user without pids": {abi.Sandbox{Namespaces: []abi.Namespace{{Type: "user", Path: "/x"}}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(holderSpec("/root", &c.s, "", "/box"))
			if err != nil {
				t.Fatal(err)
			}
			var spec specs.Spec
			if err := json.Unmarshal(text, &spec); err != nil {
				t.Fatal(err)
			}
			if got := len(spec.Linux.Namespaces); got != len(c.s.Namespaces)+1 {
				t.Errorf("%d namespaces", got)
			}
			hasProc := slices.ContainsFunc(spec.Mounts, func(m specs.Mount) bool { return m.Type == "proc" })
			if hasProc != c.proc || (len(spec.Linux.UIDMappings) > 0) != c.mapped {
				t.Errorf("proc %v, mappings %v", hasProc, spec.Linux.UIDMappings)
			}
			if !spec.Root.Readonly || !spec.Process.NoNewPrivileges || len(spec.Process.Capabilities.Bounding) > 0 || spec.Linux.Seccomp == nil {
				t.Errorf("it may do too much: %s", text)
			}
		})
	}
}
