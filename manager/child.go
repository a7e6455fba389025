package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"

	"github.com/rkt/containerd-shim-rkt-v1/manager/early"
	"github.com/rkt/containerd-shim-rkt-v1/wire"
	"github.com/rkt/containerd-shim-rkt-v1/wire/task"
)

// collectInChild collects in a child process, because an unmount can hang in the kernel. A
// process with a thread that hangs there does not end, not even by SIGKILL, and containerd
// waits for the end of this process. If the budget ends first, the child goes on for
// finishBudget, or until the unmount returns.
func collectInChild(ctx context.Context, argv0, bundle string, f *early.Flags, answered bool) (Exit, error) {
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
	child, err := startChild(argv0, bundle, f, []*os.File{nil, answer.w, stderr.w}, early.CollectAction, strconv.FormatBool(answered))
	if err != nil {
		return Exit{}, err
	}
	text, err := answer.all()
	if err != nil {
		return Exit{}, errors.Join(fmt.Errorf("process %d goes on with it: %w", child.Pid, context.Cause(ctx)), child.Release())
	}
	message, _ := stderr.all() // the child has closed it with its answer
	if err := child.Release(); err != nil {
		return Exit{}, err
	}
	if len(text) == 0 {
		return Exit{}, errors.New(strings.TrimSpace(string(message)))
	}
	var r task.DeleteResponse
	if err := wire.Decode(text, &r); err != nil {
		return Exit{}, fmt.Errorf("answer of %s: %w", early.CollectAction, err)
	}
	return Exit{PID: r.Pid, Status: r.ExitStatus, At: r.ExitedAt.AsTime()}, nil
}

// startChild starts this program with another action, in a session of its own.
func startChild(argv0, bundle string, f *early.Flags, files []*os.File, action ...string) (*os.Process, error) {
	args := append([]string{argv0, "-namespace", f.Namespace, "-id", f.ID, "-bundle", bundle, "-socket", f.Socket}, action...)
	child, err := os.StartProcess("/proc/self/exe", args,
		&os.ProcAttr{Dir: "/", Env: os.Environ(), Files: files, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", action[0], err)
	}
	return child, nil
}

// runCollect is the action of collectInChild's child. It writes its answer, closes stdout
// and stderr, and then does the work that is left.
func (p *Program) runCollect(ctx context.Context, f *early.Flags, stdout *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, finishBudget)
	defer cancel()
	bundle, err := f.BundleDir()
	if err != nil {
		return err
	}
	exit, err := p.Collector.Collect(ctx, bundle, f.Namespace, f.ID)
	if err == nil {
		err = exit.write(stdout)
	}
	if err != nil && ctx.Err() != nil {
		return err
	}
	answered := f.Argument == strconv.FormatBool(true)
	if exit.Rest == "" || !exit.Left && answered {
		return errors.Join(err, early.RemoveStaleSocket(ctx, f.Socket))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.Stderr.Close()
	if err := stdout.Close(); err != nil {
		return err
	}
	return p.finish(ctx, f, exit.Rest)
}

// finishInChild starts a process that finishes the work of `delete` after its answer.
func finishInChild(argv0, bundle string, f *early.Flags, rest string) error {
	child, err := startChild(argv0, bundle, f, nil, early.FinishAction, rest)
	if err != nil {
		return err
	}
	return child.Release()
}

// runFinish is the action of finishInChild's child. Its error is lost, because containerd
// closes the log with the bundle. The next `start` on the node, or the next end of a
// server, tries again.
func (p *Program) runFinish(ctx context.Context, f *early.Flags) error {
	ctx, cancel := context.WithTimeout(ctx, finishBudget)
	defer cancel()
	return p.finish(ctx, f, f.Argument)
}

// finish asks the server once more, which may have been too slow for `delete`, and does the work that
// is left. No other process speaks to a server that containerd has given up on, so the collector kills
// one that does not answer, if its pod has no other app.
func (p *Program) finish(ctx context.Context, f *early.Flags, rest string) error {
	_, answered := askOwner(ctx, f.Socket, f.ID, hangsAfter)
	return errors.Join(p.Collector.Finish(ctx, rest, !answered), early.RemoveStaleSocket(ctx, f.Socket))
}

// reader is a pipe that a child writes to.
type reader struct {
	*os.File
	w *os.File
}

// newReader makes a pipe. Reads from it fail reportBudget after the deadline of ctx.
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

// all closes this process's writing end and reads to the end of the pipe.
func (r *reader) all() ([]byte, error) {
	r.w.Close()
	return io.ReadAll(r)
}

// hasMounts reports whether anything is mounted below a bundle.
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
