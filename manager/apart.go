package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/proto"
)

// collectAction is what `delete` calls this program with to have the collector run
// in another process. It is nobody else's.
const collectAction = "collect"

// collectApart is collect where there is something to unmount. An unmount can hang
// in the kernel, where not even SIGKILL reaches it, and no process ends that has a
// thread there; containerd waits for the end of this one. A child may stay behind,
// and ends when the kernel lets it.
func collectApart(ctx context.Context, argv0, bundle string, f *flags) (Exit, error) {
	answer, err := newReader(ctx)
	if err != nil {
		return Exit{}, err
	}
	defer answer.shut()
	said, err := newReader(ctx)
	if err != nil {
		return Exit{}, err
	}
	defer said.shut()
	child, err := os.StartProcess("/proc/self/exe",
		[]string{argv0, "-namespace", f.namespace, "-id", f.id, "-bundle", bundle, collectAction},
		&os.ProcAttr{Env: os.Environ(), Files: []*os.File{nil, answer.w, said.w}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		return Exit{}, fmt.Errorf("start %s: %w", collectAction, err)
	}
	text, err := answer.all()
	if err != nil {
		_ = child.Kill() // it may hang where that means nothing
		return Exit{}, errors.Join(context.Cause(ctx), child.Release())
	}
	complaint, _ := said.all() // it has ended, or is about to
	state, err := child.Wait()
	if err != nil {
		return Exit{}, err
	}
	if !state.Success() {
		return Exit{}, errors.New(strings.TrimSpace(string(complaint)))
	}
	var r task.DeleteResponse
	if err := proto.Unmarshal(text, &r); err != nil {
		return Exit{}, fmt.Errorf("answer of %s: %w", collectAction, err)
	}
	return Exit{PID: r.GetPid(), Status: r.GetExitStatus(), At: r.GetExitedAt().AsTime()}, nil
}

// collectHere is what that child does.
func (p *Program) collectHere(ctx context.Context, f *flags, stdout io.Writer) error {
	bundle, err := f.bundleDir()
	if err != nil {
		return err
	}
	exit, err := p.Collector.Collect(ctx, bundle, f.namespace, f.id)
	if err != nil {
		return err
	}
	return writeExit(stdout, exit)
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
		err = r.SetReadDeadline(deadline.Add(deleteBudget / 10)) // what knows the deadline has something to say
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
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err != nil || bytes.Contains(mounts, []byte(" "+real+"/"))
}
