package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// counting is a script that makes a file longer while it runs.
func counting(t *testing.T) (script string, length func() int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "count")
	return "while :; do echo >> " + file + "; sleep 0.01; done", func() int64 {
		st, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return st.Size()
	}
}

// freezable runs a test on every version of cgroups that this host can freeze.
func freezable(t *testing.T, test func(t *testing.T, g *Group, tasks string)) {
	t.Run("version 1", func(t *testing.T) {
		if h := needV1(t); h.roots["freezer"] == "" {
			t.Skip("the freezer is not mounted")
		}
		test(t, create(t, "freeze", nil), "tasks")
	})
	t.Run("version 2", func(t *testing.T) { test(t, newV2(t, "freeze-"+strconv.Itoa(os.Getpid())), "cgroup.procs") })
}

// requirements.md#T7
func TestFreezeStopsEveryProcessUntilThaw(t *testing.T) {
	freezable(t, func(t *testing.T, g *Group, tasks string) {
		sub := filepath.Join(g.Dir("freezer"), "sub")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, dirs := range [][]string{g.dirs, {sub}} {
			script, length := counting(t)
			enterDirs(t, dirs, tasks, script)
			wait.Until(t, "the program counts", func() bool { return length() > 0 })
			if err := g.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
			frozen := length()
			wait.Still(t, fmt.Sprintf("the file of what is frozen in %v", dirs), length)
			if err := g.Thaw(); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the program goes on", func() bool { return length() > frozen })
		}
	})
}

// requirements.md#T7
func TestFreezeWithProcessesThatFork(t *testing.T) {
	freezable(t, func(t *testing.T, g *Group, tasks string) {
		enterDirs(t, g.dirs, tasks, "while :; do (:) & (:) & wait; done")
		for range 20 {
			if err := g.Freeze(t.Context()); err != nil {
				t.Fatal(err)
			}
			before, err := g.Pids()
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
			after, err := g.Pids()
			if err != nil || len(after) > len(before) {
				t.Errorf("%v became %v, %v", before, after, err)
			}
			if err := g.Thaw(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestAProcessThatEntersAFrozenCgroupStops(t *testing.T) {
	freezable(t, func(t *testing.T, g *Group, tasks string) {
		if err := g.Freeze(t.Context()); err != nil { // an empty one freezes, too
			t.Fatal(err)
		}
		script, length := counting(t)
		var wg sync.WaitGroup
		wg.Go(func() { enterDirs(t, g.dirs, tasks, script) })
		wait.Until(t, "a process is inside", func() bool { pids, _ := g.Pids(); return len(pids) > 0 })
		wait.Still(t, "the file of what is frozen", length)
		if length() != 0 {
			t.Error("it has run")
		}
		if err := g.Thaw(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		wait.Until(t, "the program counts", func() bool { return length() > 0 })
	})
}

func TestAFreezeThatFailsIsUndone(t *testing.T) {
	freezable(t, func(t *testing.T, g *Group, tasks string) {
		script, length := counting(t)
		enterDirs(t, g.dirs, tasks, "for i in 1 2 3 4 5 6 7 8 9; do while :; do :; done & done; "+script)
		wait.Until(t, "the program counts", func() bool { return length() > 0 })
		gone := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		// It may have frozen at the first look.
		wait.Until(t, "Freeze gives up", func() bool {
			err := g.Freeze(ctx)
			if err == nil {
				err = g.Thaw()
			}
			if err != nil && !errors.Is(err, gone) {
				t.Errorf("%v does not say why", err)
			}
			return err != nil
		})
		before := length()
		wait.Until(t, "the program goes on", func() bool { return length() > before })
	})
}

func TestFreezeWithoutAFreezerSaysSo(t *testing.T) {
	g := newGroup(Record{Version: 1, Path: "/x", Dirs: map[string]string{"devices": "/nowhere"}}, nil)
	if err := g.Freeze(t.Context()); err == nil || !strings.Contains(err.Error(), "not mounted") {
		t.Error(err)
	}
	if err := g.Thaw(); err != nil {
		t.Error(err)
	}
}

// requirements.md#T9
func TestAKilledProcessOfAFrozenCgroupDies(t *testing.T) {
	freezable(t, func(t *testing.T, g *Group, tasks string) {
		victim := enterDirs(t, g.dirs, tasks, "exec sleep 60")
		if err := g.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		p, err := proc.Open(victim.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := g.LetDie(); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(within(t, 30*time.Second)); err != nil {
			t.Error(err)
		}
	})
}

// requirements.md#T9
func TestSignalReachesAllThatForkMeanwhile(t *testing.T) {
	needHost(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, 34, 64} {
		t.Run(strconv.Itoa(int(sig)), func(t *testing.T) {
			g := create(t, "signal", nil)
			explode(t, g, 100)
			if err := g.Signal(sig); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "all processes have ended", func() bool { pids, _ := g.Pids(); return len(pids) == 0 })
			expectFiles(t, g, []file{{"pids", "pids.max", "100"}})
		})
	}
}
