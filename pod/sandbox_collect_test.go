package pod

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/internal/crash"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/pod/disk"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// life is a life with a sandbox and an app.
type life struct{ crash.Life }

func newLife(t *testing.T) life {
	t.Helper()
	return life{crash.New(t)}
}

func TestOneLife(t *testing.T) {
	current, _, fault := crash.Current(t)
	s, err := disk.OpenStore(current.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	s.Fault = fault
	if err := (life{current}).liveInSandbox(t, s); err != nil {
		t.Fatal(err)
	}
}

func (l life) collector(t *testing.T) *disk.Collector {
	t.Helper()
	s, err := disk.OpenStore(l.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	return &disk.Collector{Store: s, OpenStage1: func(string) (disk.Stage1, error) { return crash.Stopper{}, nil }}
}

// collect does what containerd and the next `start` do after a crash.
func (l life) collect(t *testing.T) {
	t.Helper()
	c := l.collector(t)
	exit, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID)
	if err != nil {
		t.Error(err)
	}
	if again, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID); err != nil || again.Code != exit.Code || again.PID != exit.PID {
		t.Errorf("a second time: %+v, %v; the first was %+v", again, err, exit)
	}
	l.Age(t)
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
}

// liveInSandbox makes a sandbox with an app, and removes both.
func (l life) liveInSandbox(t *testing.T, s *disk.Store) error {
	ctx := context.Background()
	children := proc.NewChildren()
	stage1 := newFakeStage1(children)
	note := "echo $$ >> " + filepath.Join(l.Base, "pids") + "; "
	stage1.script(ofHolder, note)
	stage1.script(l.ID, note+"exit 7")
	p := New(PodConfig{
		Store: s, Key: disk.Key{Daemon: "/run/containerd/containerd.sock", Namespace: "default", Sandbox: "box"}, Children: children, Events: &recorder{more: make(chan struct{}, 1)},
		OpenStage1: func(context.Context) (Stage1, error) { return stage1, nil },
	})
	c := boxConfig(t, l.Base)
	c.CgroupsPath = "/" + l.ID + "-box"
	if err := p.CreateSandbox(ctx, c); err != nil {
		return err
	}
	if _, err := p.StartSandbox(ctx, c.ID); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(l.Bundle(), "config.json"))
	if err != nil {
		return err
	}
	spec, err := ReadSpec(AppID(l.ID), l.Bundle(), text)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(l.Bundle(), "rootfs"), 0o755); err != nil {
		return err
	}
	if _, err := p.CreateApp(ctx, AppConfig{ID: AppID(l.ID), Bundle: l.Bundle(), Spec: spec, Rootfs: bareRoot{}, Stdio: &noStdio{}}); err != nil {
		return err
	}
	if _, err := p.Start(ctx, AppID(l.ID), ""); err != nil {
		return err
	}
	if _, err := p.Wait(ctx, AppID(l.ID), ""); err != nil {
		return err
	}
	if _, err := p.Delete(ctx, AppID(l.ID), ""); err != nil {
		return err
	}
	s.Fault("alone")
	return errors.Join(p.StopSandbox(ctx, c.ID, 0), p.ShutdownSandbox(ctx, c.ID), children.Close(ctx))
}

func TestAShimThatDiesAtAnyStepOfASandboxLeavesNothingAfterItsCollection(t *testing.T) {
	orders := [][]string{{"bundle", "box"}, {"box", "bundle"}}
	crash.AtEachStep(t, "the life of a sandbox", 30, func(n int, step string) bool {
		l := newLife(t)
		t.Cleanup(func() { _ = cgroup.RemoveStale(context.Background(), cgroup.Path{Spec: "/" + l.ID + "-box"}) })
		died := l.Until(t, "sandbox", step)
		for _, name := range orders[n%2] {
			id := map[string]string{"bundle": l.ID, "box": "box"}[name]
			exit, err := l.collector(t).Collect(t.Context(), filepath.Join(l.Base, name), "default", id)
			if err != nil {
				t.Errorf("collect %s: %v", name, err)
			}
			if exit.Found && exit.Code != 137 && exit.Code != 7 {
				t.Errorf("exit of %s: %+v", name, exit)
			}
		}
		l.collect(t) // what had no bundle yet, and a second time
		l.NothingLeft(t)
		if _, err := os.Lstat(filepath.Join(l.Base, "cri/box")); err == nil {
			t.Error("links are left")
		}
		if left, _ := filepath.Glob("/sys/fs/cgroup/*/" + l.ID + "-box*"); len(left) != 0 {
			t.Errorf("cgroups left: %v", left)
		}
		return died
	})
}

func TestACollectedSandboxTellsItsExitAgain(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "sandbox", "alone") {
		t.Fatal("it does not get there")
	}
	box := filepath.Join(l.Base, "box")
	first, err := l.collector(t).Collect(t.Context(), box, "default", "box")
	if err != nil || !first.Found || first.Code != 137 || first.PID == 0 {
		t.Errorf("exit %+v, %v", first, err)
	}
	again, err := l.collector(t).Collect(t.Context(), box, "default", "box")
	if err != nil || again.PID != first.PID || !again.At.Equal(first.At) {
		t.Errorf("again: %+v, %v; the first was %+v", again, err, first)
	}
	l.collect(t)
	l.NothingLeft(t)
}

func TestADeleteLeavesASandboxAloneWhoseShimLives(t *testing.T) {
	w := newWorld(t)
	c := boxConfig(t, t.TempDir())
	st := w.sandbox(c)
	collector := &disk.Collector{Store: w.cfg.Store, OpenStage1: func(string) (disk.Stage1, error) { return w.stage1, nil }}
	if exit, err := collector.Collect(t.Context(), c.Bundle, w.cfg.Key.Namespace, "box"); err != nil || exit.Found {
		t.Errorf("%+v, %v", exit, err)
	}
	if now, err := w.SandboxStatus("box"); err != nil || now.State != SandboxReady || !proc.Alive(st.PID, sandboxStart(t, st.PID)) {
		t.Errorf("status %+v, %v", now, err)
	}
	if _, err := collector.Collect(t.Context(), c.Bundle, w.cfg.Key.Namespace, "other"); err == nil {
		t.Error("the bundle of another sandbox was taken")
	}
}

func sandboxStart(t *testing.T, pid int) uint64 {
	t.Helper()
	start, err := proc.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	return start
}
