package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/stage1"
)

// crashChecks check the deaths of supervisors and shims.
func crashChecks() []Check {
	return []Check{
		inPod("crash/seen", "3",
			"the death of the supervisor is seen: the notice pipe ends, and the lock is free, although an app's process may live", func(ctx context.Context, b *barePod) error {
				must(b.start(ctx, "app", "wait"))
				try(b.sup.Kill())
				try(b.awaitEnd(ctx))
				try(eventually(ctx, "the notice pipe ends with the supervisor", func() bool { return closed(b.silent) }))
				return eventually(ctx, "the lock is free after the supervisor's death", b.lockable)
			}),
		basic("crash/buried", "3",
			"the apps of a supervisor that was killed end with 137 and can be deleted, and a new pod starts", func(ctx context.Context, t *trial) error {
				w := t.wholePod()
				a := must(w.waiting(ctx, nil))
				try(t.killSupervisor())
				try(a.ends(ctx, "", 137))
				try(a.remove(ctx))
				next, err := w.start(ctx, nil, "exit", "5")
				if err != nil {
					return fmt.Errorf("the pod after it: %w", err)
				}
				return next.ends(ctx, "", 5)
			}),
		inPod("crash/cleaned", "2", "after the death of the supervisor app/rm, stop and gc succeed", func(ctx context.Context, b *barePod) error {
			a := must(b.start(ctx, "app", "wait"))
			try(b.sup.Kill())
			try(b.awaitEnd(ctx))
			try(a.group.Kill(ctx))
			err := codeOf("app/rm", a.invoke(ctx, abi.AppRm), 0)
			for _, e := range []abi.Entrypoint{abi.Stop, abi.GC} {
				if b.t.image.Has(e) {
					err = errors.Join(err, codeOf(string(e), b.invoke(ctx, e, ""), 0))
				}
			}
			return err
		}),
		basic("crash/collected", "2", "containerd's delete removes a running app from what is on disk alone", checkCollected),
	}
}

// killSupervisor kills the run processes of running pods, whose pids are in stage 0's
// records.
func (t *trial) killSupervisor() error {
	killed := false
	for _, f := range must(filepath.Glob(filepath.Join(t.Kit.dir, "pods/run/*/shim.json"))) {
		var record struct {
			Supervisor *disk.SupervisorRecord `json:"supervisor"`
		}
		try(json.Unmarshal(must(os.ReadFile(f)), &record))
		if record.Supervisor == nil {
			continue
		}
		pid := record.Supervisor.PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill supervisor %d: %w", pid, err)
		}
		killed = true
	}
	if !killed {
		return fmt.Errorf("no pod with a supervisor in %s", filepath.Join(t.Kit.dir, "pods/run"))
	}
	return nil
}

// checkCollected does the work of containerd's `delete` after the death of a shim. The shim
// is this process, which stays alive but does nothing meanwhile.
func checkCollected(ctx context.Context, t *trial) error {
	w := t.wholePod()
	a := must(w.waiting(ctx, nil))
	c := disk.Collector{Store: t.store, OpenStage1: func(dir string) (disk.Stage1, error) {
		image, err := t.images.Load(dir)
		if err != nil {
			return nil, err
		}
		s, err := t.stage1Of(image, t.config.Excuse)
		if err != nil {
			return nil, err
		}
		return stage1.Collected(s), nil
	}}
	exit := must(c.Collect(ctx, a.config.Bundle, "verify", string(a.id)))
	if !exit.Found || exit.Code != 137 {
		return fmt.Errorf("collected %+v, want a container that was found, and killed", exit)
	}
	try(a.ends(ctx, "", 137))
	for _, p := range a.w.t.remains() {
		if strings.HasPrefix(p, "cgroup ") {
			return fmt.Errorf("after delete there is still %s", p)
		}
	}
	return nil
}
