package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/moby/sys/mountinfo"
	"google.golang.org/protobuf/proto"
)

// Actions with which `delete` calls this program to have the collector run in another
// process. They are nobody else's.
const (
	collectAction = "collect"
	finishAction  = "finish"
)

// collectInChild is collect where there is something to unmount. An unmount can hang
// in the kernel, where not even SIGKILL reaches it, and no process ends that has a
// thread there; containerd waits for the end of this one. A child may stay behind: it
// goes on with the collection, at most for finishBudget, or until the kernel lets it go.
func collectInChild(ctx context.Context, argv0, bundle string, f *flags) (Exit, error) {
	answer, err := newReader(ctx)
	if err != nil {
		return Exit{}, err
	}
	defer answer.shut()
	stderr, err := newReader(ctx)
	if err != nil {
		return Exit{}, err
	}
	defer stderr.shut()
	child, err := startChild(argv0, bundle, f, []*os.File{nil, answer.w, stderr.w}, collectAction)
	if err != nil {
		return Exit{}, err
	}
	text, err := answer.all()
	if err != nil {
		return Exit{}, errors.Join(fmt.Errorf("process %d goes on with it: %w", child.Pid, context.Cause(ctx)), child.Release())
	}
	message, _ := stderr.all() // it has no more to say
	if err := child.Release(); err != nil {
		return Exit{}, err
	}
	if len(text) == 0 {
		return Exit{}, errors.New(strings.TrimSpace(string(message)))
	}
	var r task.DeleteResponse
	if err := proto.Unmarshal(text, &r); err != nil {
		return Exit{}, fmt.Errorf("answer of %s: %w", collectAction, err)
	}
	return Exit{PID: r.GetPid(), Status: r.GetExitStatus(), At: r.GetExitedAt().AsTime()}, nil
}

// startChild starts this program with another action, in a session of its own.
func startChild(argv0, bundle string, f *flags, files []*os.File, action ...string) (*os.Process, error) {
	args := append([]string{argv0, "-namespace", f.namespace, "-id", f.id, "-bundle", bundle}, action...)
	child, err := os.StartProcess("/proc/self/exe", args,
		&os.ProcAttr{Dir: "/", Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", action[0], err)
	}
	return child, nil
}

// runCollect is what the child of collectInChild does. It answers by closing stdout and
// stderr, and goes on if there is work left.
func (p *Program) runCollect(ctx context.Context, f *flags, stdout *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, finishBudget)
	defer cancel()
	bundle, err := f.bundleDir()
	if err != nil {
		return err
	}
	exit, err := p.Collector.Collect(ctx, bundle, f.namespace, f.id)
	if err == nil {
		err = writeExit(stdout, exit)
	}
	if exit.Rest == "" || err != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.Stderr.Close()
	if err := stdout.Close(); err != nil {
		return err
	}
	return p.Collector.Finish(ctx, exit.Rest)
}

// finishInChild leaves a process behind that does what `delete` has no time for.
func finishInChild(argv0, bundle string, f *flags, rest string) error {
	child, err := startChild(argv0, bundle, f, nil, finishAction, rest)
	if err != nil {
		return err
	}
	return child.Release()
}

// runFinish is what that process does. Nobody hears what goes wrong: containerd closes
// the log with the bundle, and the next `start` or end of a server tries again.
func (p *Program) runFinish(ctx context.Context, f *flags) error {
	ctx, cancel := context.WithTimeout(ctx, finishBudget)
	defer cancel()
	return p.Collector.Finish(ctx, f.argument)
}

// reader is a pipe that somebody else writes to.
type reader struct {
	*os.File
	w *os.File
}

// newReader makes one of which reading ends with ctx.
func newReader(ctx context.Context) (*reader, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		err = r.SetReadDeadline(deadline.Add(reportBudget))
	}
	return &reader{r, w}, err
}

// shut closes both ends.
func (r *reader) shut() {
	r.w.Close()
	r.Close()
}

// all reads to the end.
func (r *reader) all() ([]byte, error) {
	r.w.Close()
	return io.ReadAll(r)
}

// hasMounts tells whether anything is mounted below a bundle.
func hasMounts(bundle string) bool {
	real, err := filepath.EvalSymlinks(bundle)
	if err != nil {
		return false
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		below := strings.HasPrefix(m.Mountpoint, real+"/")
		return !below, below
	})
	return err != nil || len(mounts) > 0
}
