package strace

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func write(t *testing.T, dir, thread, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, prefix+"."+thread), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, trace *Trace) Counts {
	t.Helper()
	calls, err := trace.Next()
	if err != nil {
		t.Fatal(err)
	}
	return Count(calls, "/data")
}

func programs(calls []Call) []string {
	var names []string
	for _, c := range calls {
		names = append(names, c.Program)
	}
	slices.Sort(names)
	return names
}

func TestCallsAreCountedByProgram(t *testing.T) {
	dir := t.TempDir()
	trace := Open(dir)
	write(t, dir, "10", `execve("/data/bin/shim", ["/data/bin/shim", "-id", "x", "start"], 0x7ffe /* 9 vars */) = 0
clone(child_stack=NULL, flags=CLONE_VM|CLONE_THREAD|SIGCHLD) = 11
clone(child_stack=NULL, flags=CLONE_VM|CLONE_THREAD|SIGCHLD) = 14
futex(0x1234, FUTEX_WAIT_PRIVATE, 0, NULL <unfinished ...>
`)
	write(t, dir, "11", `clone3({flags=CLONE_NEWPID, exit_signal=SIGCHLD}, 88) = 2 /* 12 in strace's PID NS */
openat(AT_FDCWD</data>, "/elsewhere", O_RDONLY) = 3</elsewhere>
openat(AT_FDCWD</>, "/data/file", O_WRONLY|O_CREAT|O_CLOEXEC, 0640) = 3</data/file>
`)
	write(t, dir, "12", `mkdirat(AT_FDCWD</data>, "dir", 0755) = -1 EEXIST (File exists)
mkdirat(5</data>, "other", 0755)        = 0
write(6<socket:[1]>, "{\"dirs\":[\"/sys/fs/cgroup/a\",\"/data/a\"]}", 38) = 38
execve("/data/init", ["init"], 0x7ffe /* 9 vars */) = 0
unlinkat(AT_FDCWD</>, "/sys/fs/cgroup/a", AT_REMOVEDIR) = -1 EBUSY (Device or resource busy)
rmdir("/sys/fs/cgroup/a")               = 0
clone(child_stack=NULL, flags=SIGCHLD) = 13
+++ exited with 0 +++
`)
	write(t, dir, "13", `write(7</sys/fs/cgroup/pids/a/tasks>, "0", 1) = 1
`)
	write(t, dir, "14", `openat(AT_FDCWD</>, "/data/before", O_RDONLY) = 3</data/before>
setns(4<anon_inode:[pidfd]>, CLONE_NEWNS) = 0
mkdirat(AT_FDCWD</data>, "root", 0755) = 0
`)
	n := next(t, trace)
	for _, want := range []struct {
		what  string
		calls []Call
		by    []string
	}{
		{"execs", n.Execs, []string{"init", "shim start"}},
		{"made", n.Made, []string{"init", "shim start", "thread in a container of shim start"}},
		{"removed", n.Removed, nil},
		{"cgroup", n.Cgroup, []string{"child of init", "init"}},
		{"files", n.Files, []string{"init", "init", "shim start", "shim start", "thread in a container of shim start"}},
	} {
		if got := programs(want.calls); !slices.Equal(got, want.by) {
			t.Errorf("%s: by %q, want %q: %v", want.what, got, want.by, want.calls)
		}
	}

	// The second part of a line that was half written, and the rest of a thread's calls.
	write(t, dir, "11", `openat(AT_FDCWD</>, "/data/se`)
	if n := next(t, trace); len(n.Files) != 0 {
		t.Errorf("half a line counts: %v", n.Files)
	}
	write(t, dir, "11", "cond\", O_RDONLY) = 3</data/second>\nrenameat(3</data>, \"a\", 3</data>, \"b\") = 0\n")
	if n := next(t, trace); len(n.Files) != 2 || len(n.Renamed) != 1 || n.Renamed[0].Program != "shim start" {
		t.Errorf("calls %v, renamed %v", n.Files, n.Renamed)
	}
}
