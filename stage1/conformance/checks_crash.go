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

// crashChecks are about supervisors and shims that die.
func crashChecks() []Check {
	return []Check{
		{
			ID: "crash/seen", Level: LevelRun, Section: "3", mutable: true,
			Sentence: "the death of the supervisor is seen: the notice pipe ends, and the lock is free, although an app's process may live",
			run: func(ctx context.Context, t *trial) error {
				b, err := t.runningPod(ctx)
				if err != nil {
					return err
				}
				if _, err := b.start(ctx, "app", "wait"); err != nil {
					return err
				}
				if err := b.sup.Kill(); err != nil {
					return err
				}
				if err := b.awaitEnd(ctx); err != nil {
					return err
				}
				if err := eventually(ctx, "the notice pipe ends with the supervisor", func() bool { return closed(b.silent) }); err != nil {
					return err
				}
				return eventually(ctx, "the lock is free after the supervisor's death", b.lockable)
			},
		},
		{
			ID: "crash/buried", Level: LevelRun, Section: "3",
			Sentence: "the apps of a supervisor that was killed end with 137 and can be deleted, and a new pod starts",
			run: func(ctx context.Context, t *trial) error {
				w := t.wholePod()
				a, err := w.waiting(ctx, nil)
				if err != nil {
					return err
				}
				if err := t.killSupervisor(); err != nil {
					return err
				}
				if err := a.ends(ctx, "", 137); err != nil {
					return err
				}
				if err := a.remove(ctx); err != nil {
					return err
				}
				next, err := w.start(ctx, nil, "exit", "5")
				if err != nil {
					return fmt.Errorf("the pod after it: %w", err)
				}
				return next.ends(ctx, "", 5)
			},
		},
		{
			ID: "crash/cleaned", Level: LevelRun, Section: "2", mutable: true,
			Sentence: "after the death of the supervisor app/rm, stop and gc succeed",
			run: func(ctx context.Context, t *trial) error {
				b, err := t.runningPod(ctx)
				if err != nil {
					return err
				}
				a, err := b.start(ctx, "app", "wait")
				if err != nil {
					return err
				}
				if err := b.sup.Kill(); err != nil {
					return err
				}
				if err := b.awaitEnd(ctx); err != nil {
					return err
				}
				if err := a.group.Kill(ctx); err != nil {
					return err
				}
				err = codeOf("app/rm", a.invoke(ctx, abi.AppRm), 0)
				for _, e := range []abi.Entrypoint{abi.Stop, abi.GC} {
					if t.image.Has(e) {
						err = errors.Join(err, codeOf(string(e), b.invoke(ctx, e, ""), 0))
					}
				}
				return err
			},
		},
		{
			ID: "crash/collected", Level: LevelRun, Section: "2",
			Sentence: "containerd's delete removes a running app from what is on disk alone",
			run:      checkCollected,
		},
	}
}

// killSupervisor kills the run process of the only pod, as the pod's record has it.
func (t *trial) killSupervisor() error {
	pids, err := t.supervisors()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill supervisor %d: %w", pid, err)
		}
	}
	return nil
}

// supervisors returns the pids of the supervisors of running pods, from stage 0's
// records.
func (t *trial) supervisors() ([]int, error) {
	files, err := filepath.Glob(filepath.Join(t.Kit.dir, "pods/run/*/shim.json"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, f := range files {
		var record struct {
			Supervisor *disk.SupervisorRecord `json:"supervisor"`
		}
		b, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(b, &record)
		}
		if err != nil {
			return nil, err
		}
		if record.Supervisor != nil {
			pids = append(pids, record.Supervisor.PID)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no pod with a supervisor in %s", filepath.Join(t.Kit.dir, "pods/run"))
	}
	return pids, nil
}

// checkCollected does what containerd's `delete` does after the death of a shim. The shim is
// this process, which stays alive and does nothing meanwhile.
func checkCollected(ctx context.Context, t *trial) error {
	w := t.wholePod()
	a, err := w.waiting(ctx, nil)
	if err != nil {
		return err
	}
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
	exit, err := c.Collect(ctx, a.config.Bundle, "verify", string(a.id))
	if err != nil {
		return err
	}
	if !exit.Found || exit.Code != 137 {
		return fmt.Errorf("collected %+v, want a container that was found, and killed", exit)
	}
	if err := a.ends(ctx, "", 137); err != nil {
		return err
	}
	for _, p := range a.w.t.remains() {
		if strings.HasPrefix(p, "cgroup ") {
			return fmt.Errorf("after delete there is still %s", p)
		}
	}
	return nil
}
