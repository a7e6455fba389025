package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// imageChecks are about the files of the image, before any entrypoint runs.
func imageChecks() []Check {
	return []Check{
		{
			ID: "image/declares", Level: LevelRun, Section: "9",
			Sentence: "the features document declares what an app needs at least: a root, a program with arguments and environment, and a directory",
			run: func(_ context.Context, t *trial) error {
				s := t.plainSpec("exit", "0")
				s.Mounts, s.Linux = nil, nil
				return t.declares(s)
			},
		},
		{
			ID: "image/pairs", Level: LevelRun, Section: "5",
			Sentence: "entrypoints that need each other are declared together: app/add, app/start and app/rm; app/pause and app/resume",
			run: func(_ context.Context, t *trial) error {
				for _, set := range [][]abi.Entrypoint{{abi.AppAdd, abi.AppStart, abi.AppRm}, {abi.AppPause, abi.AppResume}} {
					for _, e := range set {
						if t.image.Has(e) != t.image.Has(set[0]) {
							return fmt.Errorf("of %v only some are declared", set)
						}
					}
				}
				return nil
			},
		},
	}
}

// settle is how long to wait for something that must not happen.
const settle = 300 * time.Millisecond

// runChecks are about a supervisor without apps.
func runChecks() []Check {
	mutable := func(id, sentence string, run func(context.Context, *trial) error) Check {
		return Check{ID: id, Level: LevelRun, Section: "5 run", Sentence: sentence, mutable: true, run: run}
	}
	return []Check{
		mutable("run/ready", "run reports ready with a process that lives, and stays, also without an app", func(ctx context.Context, t *trial) error {
			b := must(t.runningPod(ctx))
			if !proc.Alive(b.sup.Leader.PID, b.sup.Leader.StartTime) {
				return fmt.Errorf("process %d, which it has reported, does not live", b.sup.Leader.PID)
			}
			return b.staysFor(settle)
		}),
		mutable("run/lock", "the pod's lock is held as long as the pod runs, and by nobody after it", func(ctx context.Context, t *trial) error {
			b := must(t.runningPod(ctx))
			if b.lockable() {
				return errors.New("nobody holds the lock of a pod that runs: RKT_LOCK_FD was closed")
			}
			try(b.stop(ctx, false))
			return eventually(ctx, "the lock is free after stop", b.lockable)
		}),
		mutable("run/hangup", "the supervisor ignores SIGHUP and SIGPIPE", func(ctx context.Context, t *trial) error {
			b := must(t.runningPod(ctx))
			for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGPIPE} {
				try(b.sup.Signal(sig))
			}
			return b.staysFor(settle)
		}),
		mutable("run/terminate", "SIGTERM is an orderly stop: the apps end, and then the supervisor", func(ctx context.Context, t *trial) error {
			b := must(t.runningPod(ctx))
			a := must(b.start(ctx, "app", "wait"))
			try(b.sup.Signal(syscall.SIGTERM))
			if err := b.awaitEnd(ctx); err != nil {
				return fmt.Errorf("the supervisor, after SIGTERM: %w", err)
			}
			return a.goneWith(ctx, "SIGTERM for the supervisor")
		}),
	}
}

// staysFor fails if the supervisor ends within d.
func (b *barePod) staysFor(d time.Duration) error {
	select {
	case <-b.sup.Done:
		return errors.New("the run process has ended")
	case <-time.After(d):
		return nil
	}
}

// lockable reports whether no process holds the pod's lock.
func (b *barePod) lockable() bool {
	f, err := os.Open(b.dir)
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil
}

// goneWith fails if the process does not end. what names the call that should have ended
// it.
func (q *bareProcess) goneWith(ctx context.Context, what string) error {
	return eventually(ctx, fmt.Sprintf("process %d is gone after %s", q.PID, what), func() bool {
		return !proc.Alive(q.PID, q.StartTime)
	})
}

// eventually polls until a condition holds that is not announced.
func eventually(ctx context.Context, what string, holds func() bool) error {
	for end := time.Now().Add(leaveLimit); !holds(); time.Sleep(again) {
		if time.Now().After(end) || ctx.Err() != nil {
			return errors.New("this does not come true: " + what)
		}
	}
	return nil
}

// stopChecks are about the end of a pod.
func stopChecks() []Check {
	return []Check{
		{
			ID: "stop/apps", Level: LevelRun, Section: "5 stop", mutable: true,
			Sentence: "stop ends a pod with an app that runs: the app's processes, then the supervisor",
			run:      func(ctx context.Context, t *trial) error { return t.stopEndsAnApp(ctx, false, "stop") },
		},
		{
			ID: "stop/over", Level: LevelRun, Section: "5 stop", mutable: true, needs: []abi.Entrypoint{abi.Stop},
			Sentence: "stop of a pod that is over succeeds, with --force and without",
			run: func(ctx context.Context, t *trial) error {
				b := must(t.runningPod(ctx))
				try(b.stop(ctx, false))
				c := b.call(abi.Stop, "")
				err := codeOf("stop", b.stage1.Invoke(ctx, c), 0)
				c.Force = true
				return errors.Join(err, codeOf("stop --force", b.stage1.Invoke(ctx, c), 0))
			},
		},
		{
			ID: "stop/force", Level: LevelRun, Section: "5 stop", mutable: true, needs: []abi.Entrypoint{abi.Stop},
			Sentence: "stop --force ends a pod with an app that runs",
			run:      func(ctx context.Context, t *trial) error { return t.stopEndsAnApp(ctx, true, "stop --force") },
		},
		{
			ID: "gc/twice", Level: LevelRun, Section: "5 gc", mutable: true, needs: []abi.Entrypoint{abi.GC},
			Sentence: "gc may be called more than once",
			run: func(ctx context.Context, t *trial) error {
				b := must(t.runningPod(ctx))
				must(b.start(ctx, "app", "wait"))
				try(b.stop(ctx, false))
				return errors.Join(codeOf("gc", b.invoke(ctx, abi.GC, ""), 0), codeOf("the second gc", b.invoke(ctx, abi.GC, ""), 0))
			},
		},
		{
			ID: "gc/never-ran", Level: LevelRun, Section: "5 gc", needs: []abi.Entrypoint{abi.GC},
			Sentence: "gc of a pod that never ran succeeds",
			run: func(ctx context.Context, t *trial) error {
				b := must(t.barePod())
				return codeOf("gc", b.invoke(ctx, abi.GC, ""), 0)
			},
		},
	}
}

// stopEndsAnApp stops a pod with an app that runs. what names the call.
func (t *trial) stopEndsAnApp(ctx context.Context, force bool, what string) error {
	b := must(t.runningPod(ctx))
	a := must(b.start(ctx, "app", "wait"))
	try(b.stop(ctx, force))
	return a.goneWith(ctx, what)
}
