package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/native/fork"
)

// byPlan makes the app by a plan and a Builder, as the supervisor does, and waits for its end. It
// returns nil if the supervisor would have Init make the app, or make it again.
func (b *box) byPlan() *result {
	b.t.Helper()
	if b.aged || len(b.cgroups) > 0 {
		return nil
	}
	p, err := PrepareApp(AppRequest{Request: b.request, Spec: b.spec})
	must(b.t, err)
	defer p.Close()
	program, _ := p.First()
	if program == nil {
		return nil
	}
	out, err := os.Create(filepath.Join(b.t.TempDir(), "output"))
	must(b.t, err)
	defer out.Close()
	stdin := b.stdin
	if stdin == nil {
		stdin, err = os.Open("/dev/null")
		must(b.t, err)
		defer stdin.Close()
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), wait.Patience)
	defer cancel()
	flags := int(b.attr().Cloneflags)
	begun, err := fork.Begin(ctx, &fork.Process{
		Files: []*os.File{stdin, out, out}, Program: program, Born: p.Limit, New: uintptr(flags),
	})
	if failed := (*fork.Error)(nil); errors.As(err, &failed) {
		return nil
	}
	if err != nil {
		return &result{failure: &Message{Text: err.Error(), Code: serve.CodeOf(err)}}
	}
	defer begun.Close()
	defer context.AfterFunc(ctx, func() { _ = unix.Kill(begun.PID, unix.SIGKILL) })()
	r := &result{}
	err = b.plan(begun, p, flags)
	var status syscall.WaitStatus
	if err != nil {
		r.failure = &Message{Text: err.Error(), Code: serve.CodeOf(err)}
		_ = unix.Kill(begun.PID, unix.SIGKILL)
	}
	if _, err := syscall.Wait4(begun.PID, &status, 0, nil); err != nil {
		b.t.Fatal(err)
	}
	if failed := (*fork.Error)(nil); errors.As(err, &failed) || errors.Is(err, ErrOutside) {
		return nil
	}
	r.code = status.ExitStatus()
	written, err := os.ReadFile(out.Name())
	must(b.t, err)
	r.output = string(written)
	return r
}

// plan does the supervisor's part, until the exec.
func (b *box) plan(begun *fork.Begun, p *Prepared, flags int) error {
	procfs, err := begun.Await()
	if err != nil {
		return err
	}
	for _, f := range procfs {
		defer f.Close()
	}
	fd, err := unix.PidfdOpen(begun.PID, 0)
	if err != nil {
		return err
	}
	pidfd := os.NewFile(uintptr(fd), "pidfd")
	defer pidfd.Close()
	builder, err := p.Builder(begun.PID, pidfd, flags, procfs)
	if err != nil {
		return err
	}
	if b.enemy == nil {
		err = builder.Build()
	} else {
		err = b.enemy.attack(builder)
	}
	if err != nil {
		return err
	}
	begun.Go()
	if _, err := begun.Await(); err != nil {
		return err
	}
	if b.ready != nil {
		b.ready(begun.PID)
	}
	begun.Go()
	_, err = begun.Executed()
	return err
}

// attack calls Build, and lets the adversary act on its system calls.
func (a *adversary) attack(b *Builder) error {
	defer b.release()
	done := make(chan struct{})
	defer func() { <-done }()
	return proc.OnThread(func() error {
		listener, err := loadFilter(notifying(a.calls), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
		if err != nil {
			close(done)
			return err
		}
		go func() {
			defer close(done)
			defer unix.Close(listener)
			a.serve(listener) // until this thread has ended
		}()
		return b.make()
	})
}

// text is what a result has in common in both ways: not ids that the kernel counts up, nor what it says
// of the first mount of an overlay only, nor the ignored signals, which package fork, and not Init, resets.
func (r *result) text() string {
	text := fmt.Sprintf("exit code %d\n%s", r.code, r.output)
	if r.failure != nil {
		text = r.failure.Text
	}
	for _, expression := range []string{
		`(?m)^(Tgid|Pid|NS.*|Vm.*|Rss.*|.*ctxt_switches|SigQ|SigIgn|Hugetlb.*):.*$`,
		`(?m)^\d+ \d+ \d+:\d+ `, `,uuid=on`, `(shared|master|propagate_from):\d+`, `(net|ipc|uts|pid|mnt|cgroup):\[\d+\]`} {
		text = regexp.MustCompile(expression).ReplaceAllString(text, "")
	}
	return text
}
