package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// A container may make directories until their depth exceeds the longest path and the number of
// files that a process may have open.
func TestRemoveAllRemovesATreeOfAnyDepth(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	kept := filepath.Join(filepath.Dir(top), "kept")
	for _, dir := range []string{top, kept} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(kept, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(top, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 500
	for range depth {
		must(t, unix.Mkdirat(at, "deeper", 0o755))
		must(t, unix.Mkdirat(at, "beside", 0o755))
		must(t, unix.Symlinkat(kept, at, "link"))
		must(t, unix.Mknodat(at, "file", unix.S_IFREG|0o600, 0))
		next, err := unix.Openat(at, "deeper", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	must(t, unix.Close(at))

	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 100, Max: old.Max}))
	err = proc.RemoveAll(top)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, err)
	if _, err := os.Lstat(top); err == nil {
		t.Error("it is left")
	}
	if _, err := os.Lstat(filepath.Join(kept, "file")); err != nil {
		t.Errorf("it followed a link: %v", err)
	}
}

func TestRemoveAllRemovesFilesAndManyDirectories(t *testing.T) {
	top := t.TempDir()
	for i := range 1100 {
		must(t, os.MkdirAll(filepath.Join(top, fmt.Sprint(i), "sub"), 0o755))
	}
	must(t, proc.RemoveAll(top))
	must(t, proc.RemoveAll(top)) // there is none any more
	must(t, os.WriteFile(top, nil, 0o600))
	must(t, proc.RemoveAll(top))
	if _, err := os.Lstat(top); err == nil {
		t.Error("it is left")
	}
}

// It must not end in a loop.
func TestRemoveAllEndsWithAFileThatCannotBeRemoved(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount")
	}
	top := t.TempDir()
	busy := filepath.Join(top, "a", "busy")
	must(t, os.MkdirAll(busy, 0o755))
	must(t, unix.Mount("busy", busy, "tmpfs", 0, ""))
	defer func() { must(t, unix.Unmount(busy, unix.MNT_DETACH)) }()
	if err := proc.RemoveAll(top); err == nil {
		t.Error("a mount was removed")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
