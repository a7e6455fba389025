package mount

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/wire/types"
)

// An unmount waits until files that are just being closed are closed.
const (
	busyAttempts = 50
	busyPause    = 50 * time.Millisecond
)

// helperOf returns the program that mounts a type such as fuse3.NAME, and NAME.
func helperOf(kind string) (helper, name string, ok bool) {
	prefix, name, ok := strings.Cut(kind, ".")
	if !ok || prefix != "fuse" && prefix != "fuse3" {
		return "", "", false
	}
	return "mount." + prefix, name, true
}

// A helper speaks to the program that serves its file system, which may wait for a network. Create, and the undo of
// its mounts, end within these limits all the same (docs/lifecycle.md, *Limits*).
const (
	mountLimit   = 30 * time.Second
	unmountLimit = 5 * time.Second
	// helperLinger is how long a helper that has ended is waited for to end its output, which a program that it has left, such
	// as the one that serves the file system, may keep.
	helperLinger = 200 * time.Millisecond
)

func mountByHelper(ctx context.Context, helper, kind string, m *types.Mount, target string) error {
	args := []string{m.Source, target}
	for _, o := range m.Options {
		args = append(args, "-o", o)
	}
	out, err := run(ctx, mountLimit, helper, append(args, "-t", kind)...)
	if err != nil {
		return fmt.Errorf("%s: %q: %w", helper, out, err)
	}
	return nil
}

// run runs a helper until its limit, or until ctx ends, and kills it with the processes of its group. A program that
// serves a file system has a group of its own.
func run(ctx context.Context, limit time.Duration, name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("killed, because it has not ended within %s", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	said := make(chan []byte, 1)
	go drain(r, said)
	err = cmd.Wait()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	select {
	case out := <-said:
		return out, err
	case <-time.After(helperLinger):
		return nil, err
	}
}

// drain reads to the end what a helper and the programs that it has left write, and sends its beginning. Without a reader, a program that
// serves a file system would end at its next message.
func drain(r *os.File, said chan<- []byte) {
	defer r.Close()
	out, _ := io.ReadAll(io.LimitReader(r, mostOutput))
	said <- out
	_, _ = io.Copy(io.Discard, r)
}

// mostOutput bounds the text of a helper in an error.
const mostOutput = 4096

// unmount undoes the last mount at a path. The helpers of FUSE end the program that serves the
// file system. If that program hangs, so does every question about its file system, so the type is read from mountinfo.
func unmount(target string) error {
	if isFUSE(target) {
		for _, helper := range []string{"fusermount3", "fusermount"} {
			if _, err := run(context.Background(), unmountLimit, helper, "-u", target); err == nil {
				return nil
			}
		}
	}
	for i := 0; ; i++ {
		err := unix.Unmount(target, 0)
		if err != unix.EBUSY || i == busyAttempts {
			return err
		}
		time.Sleep(busyPause)
	}
}

// isFUSE reports whether the last mount at a path is one of FUSE.
func isFUSE(target string) bool {
	dir, err := filepath.EvalSymlinks(filepath.Dir(target))
	if err != nil {
		return false
	}
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(dir, filepath.Base(target))))
	if err != nil || len(mounts) == 0 {
		return false
	}
	kind, _, _ := strings.Cut(mounts[len(mounts)-1].FSType, ".")
	return kind == "fuse" || kind == "fuseblk"
}
