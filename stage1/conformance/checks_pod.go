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

// imageChecks check the files of the image, before any entrypoint runs.
func imageChecks() []Check {
	return []Check{
		basic("image/declares", "9", "the features document declares what an app needs at least: a root, a program with arguments and environment, and a directory",
			func(_ context.Context, t *trial) error {
				s := t.plainSpec("exit", "0")
				s.Mounts, s.Linux = nil, nil
				return t.declares(s)
			}),
		basic("image/pairs", "5", "entrypoints that need each other are declared together: app/add, app/start and app/rm; app/pause and app/resume",
			func(_ context.Context, t *trial) error {
				for _, set := range [][]abi.Entrypoint{{abi.AppAdd, abi.AppStart, abi.AppRm}, {abi.AppPause, abi.AppResume}} {
					for _, e := range set {
						if t.image.Has(e) != t.image.Has(set[0]) {
							return fmt.Errorf("of %v only some are declared", set)
						}
					}
				}
				return nil
			}),
	}
}

// settle returns how long to watch for something that must not happen.
func settle() time.Duration { return 300 * time.Millisecond * Pace() }

// runChecks check a supervisor without apps.
func runChecks() []Check {
	return []Check{
		inPod("run/ready", "5 run",
			"run reports ready with a process that lives, and stays, also without an app", func(ctx context.Context, b *barePod) error {
				if !proc.Alive(b.sup.Leader.PID, b.sup.Leader.StartTime) {
					return fmt.Errorf("process %d, which it has reported, does not live", b.sup.Leader.PID)
				}
				return b.staysFor(settle())
			}),
		inPod("run/lock", "5 run", "the pod's lock is held as long as the pod runs, and by nobody after it", func(ctx context.Context, b *barePod) error {
			if b.lockable() {
				return errors.New("no process holds the lock of a pod that runs: RKT_LOCK_FD was closed")
			}
			try(b.stop(ctx, false))
			return eventually(ctx, "the lock is free after stop", b.lockable)
		}),
		inPod("run/hangup", "5 run", "the supervisor ignores SIGHUP and SIGPIPE", func(ctx context.Context, b *barePod) error {
			for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGPIPE} {
				try(b.sup.Signal(sig))
			}
			return b.staysFor(settle())
		}),
		inPod("run/terminate", "5 run", "SIGTERM is an orderly stop: the apps end, and then the supervisor", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(b.sup.Signal(syscall.SIGTERM))
			if err := b.awaitEnd(ctx); err != nil {
				return fmt.Errorf("the supervisor, after SIGTERM: %w", err)
			}
			return a.goneWith(ctx, "SIGTERM for the supervisor")
		}),
		inPod("network/told", "5 network", "network succeeds while an app runs, and after that", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			c := a.call(abi.Network)
			c.Request.Netns = fmt.Sprintf("/proc/%d/ns/net", a.PID)
			try(b.stage1.Invoke(ctx, c))
			try(a.invoke(ctx, abi.AppStop))
			return b.stage1.Invoke(ctx, c)
		}, abi.Network, abi.AppStop),
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

// eventually polls until a condition holds. It is for conditions that no event
// announces.
func eventually(ctx context.Context, what string, holds func() bool) error {
	if !poll(ctx, leaveLimit*Pace(), holds) {
		return errors.New("this does not come true: " + what)
	}
	return nil
}

// stopChecks check the end of a pod.
func stopChecks() []Check {
	gcOfNew := basic("gc/never-ran", "5 gc", "gc of a pod that never ran succeeds", func(ctx context.Context, t *trial) error {
		return codeOf("gc", t.barePod().invoke(ctx, abi.GC, ""), 0)
	})
	gcOfNew.needs = []abi.Entrypoint{abi.GC}
	return []Check{
		inPod("stop/apps", "5 stop", "stop ends a pod with an app that runs: the app's processes, then the supervisor", func(ctx context.Context, b *barePod) error { return b.stopEndsAnApp(ctx, false, "stop") }),
		inPod("stop/over", "5 stop", "stop of a pod that is over succeeds, with --force and without", func(ctx context.Context, b *barePod) error {
			try(b.stop(ctx, false))
			c := b.call(abi.Stop, "")
			err := codeOf("stop", b.stage1.Invoke(ctx, c), 0)
			c.Force = true
			return errors.Join(err, codeOf("stop --force", b.stage1.Invoke(ctx, c), 0))
		}, abi.Stop),
		inPod("stop/force", "5 stop", "stop --force ends a pod with an app that runs", func(ctx context.Context, b *barePod) error { return b.stopEndsAnApp(ctx, true, "stop --force") }, abi.Stop),
		inPod("gc/twice", "5 gc", "gc may be called more than once", func(ctx context.Context, b *barePod) error {
			must(b.start(ctx, "app", "wait"))
			try(b.stop(ctx, false))
			return errors.Join(codeOf("gc", b.invoke(ctx, abi.GC, ""), 0), codeOf("the second gc", b.invoke(ctx, abi.GC, ""), 0))
		}, abi.GC),
		gcOfNew,
	}
}

// stopEndsAnApp stops a pod that has a running app. what names the call in errors.
func (b *barePod) stopEndsAnApp(ctx context.Context, force bool, what string) error {
	a := must(b.start(ctx, "app", "wait"))
	try(b.stop(ctx, force))
	return a.goneWith(ctx, what)
}
