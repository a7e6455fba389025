package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/crash"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// debugged makes a pod with an app, and makes and removes a debug app of that app.
func (l life) debugged(s *Store) error {
	d, err := s.Create(testKey, Stage1Record{Name: "fake"}, nil)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(d.Path(), abi.StatusDir), 0o755), d.Run()); err != nil {
		return err
	}
	sup, err := l.start(s, d.LockFile(), "exec sleep 300")
	if err != nil {
		return err
	}
	if err := errors.Join(d.SetSupervisor(sup), d.ReleaseLock()); err != nil {
		return err
	}
	target, its, err := l.addApp(s, d)
	if err != nil {
		return err
	}
	s.Fault("live")
	const id = "rktctl-0123456789abcdef"
	bundle, err := d.MakeDebug(id)
	if err != nil {
		return err
	}
	path := "/" + l.ID + "-debug"
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(`{"linux":{"cgroupsPath":"`+path+`"}}`), 0o600); err != nil {
		return err
	}
	s.Fault("spec")
	a, err := d.AddDebugApp(id, bundle, target.name, &specs.Spec{})
	if err != nil {
		return err
	}
	g, err := l.furnish(s, a, path)
	if err != nil {
		return err
	}
	s.Fault("debugs")
	ctx := context.Background()
	return errors.Join(g.Kill(ctx), Unmount(filepath.Join(bundle, "rootfs")), g.Remove(ctx), a.Remove(), d.RemoveDebug(id),
		its.Kill(ctx), proc.Signal(sup.PID, sup.StartTime, syscall.SIGKILL)) // no goroutine may be left that waits for them
}

func TestAShimThatDiesWhileItHasADebugAppLeavesNothing(t *testing.T) {
	crash.AtEachStep(t, "the life of a debug app", 30, func(_ int, step string) bool {
		l := newLife(t)
		died := l.Until(t, "debug", step)
		l.collect(t)
		l.NothingLeft(t)
		return died
	})
}

// A delete that dies goes on from where it was.
func TestADeleteThatDiesWhileItRemovesADebugAppCanBeRepeated(t *testing.T) {
	crash.AtEachStep(t, "a collection", 12, func(_ int, step string) bool {
		l := newLife(t)
		if !l.Until(t, "debug", "debugs") {
			t.Fatal("it does not get there")
		}
		died := l.Until(t, "collect", step)
		if exit := l.collect(t); !exit.Found || exit.Code != 137 {
			t.Errorf("exit %+v", exit)
		}
		l.NothingLeft(t)
		return died
	})
}

// While the shim is alive, the collection of one app leaves the debug apps of others alone.
func TestALivingShimsDebugAppsOfOtherAppsAreNotTouched(t *testing.T) {
	l := newLife(t)
	c := l.collector(t)
	d := newDir(t, c.Store) // this process is its shim
	if err := d.Run(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.addApp(c.Store, d); err != nil {
		t.Fatal(err)
	}
	sibling, err := d.AddApp("sibling", t.TempDir(), &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := d.MakeDebug("rktctl-1")
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.AddDebugApp("rktctl-1", bundle, sibling.name, &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	pid, start := innocent(t)
	if err := a.Update(func(r *AppRecord) { r.PID, r.StartTime = pid, start }); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(bundle, bundleFile)); err != nil || !proc.Alive(pid, start) {
		t.Errorf("the debug app of another app was collected: %v", err)
	}
	if err := errors.Join(a.Remove(), d.RemoveDebug("rktctl-1"), sibling.Remove(), d.Remove(soon(t))); err != nil {
		t.Error(err)
	}
	l.NothingLeft(t)
}
