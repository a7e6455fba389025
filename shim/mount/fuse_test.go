package mount

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// gone reports whether no process has a pid, or it has ended.
func gone(pid int) bool {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// A helper waits for a server that does not answer, with a process of its own.
func TestAHelperThatHangsEndsWithItsLimitAndWithCreate(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nsleep 1000 &\necho $! >" + bin + "/tmp && mv " + bin + "/tmp " + bin + "/pid; wait\n"
	if err := os.WriteFile(filepath.Join(bin, "mount.fuse3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("the client has gone")
	ended := make(chan error, 1)
	go func() { ended <- Mount(ctx, &types.Mount{Type: "fuse3.name", Source: "x"}, dir) }()
	var pid int
	wait.Until(t, "the helper runs", func() bool {
		b, err := os.ReadFile(filepath.Join(bin, "pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		}
		return err == nil
	})
	cancel(left)
	if err := wait.For(t, "the end of the mount", ended); !errors.Is(err, left) {
		t.Errorf("it ended with %v", err)
	}
	wait.Until(t, "the helper's own process has ended", func() bool { return gone(pid) })
	if _, err := run(t.Context(), time.Millisecond, "sh", "-c", "sleep 1000 & wait"); err == nil || !strings.Contains(err.Error(), "within 1ms") {
		t.Errorf("after its limit: %v", err)
	}
}

// The program that serves the file system has inherited the helper's output. Its messages must not end it.
func TestAHelperIsDoneAlthoughItsServerKeepsItsOutput(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := "cd " + dir + "; (read x <fifo; echo message; echo message; echo served >done) & echo done"
	if _, err := run(t.Context(), mountLimit, "sh", "-c", server); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fifo"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the server has gone on after its messages", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "done"))
		return err == nil && string(b) == "served\n"
	})
}
