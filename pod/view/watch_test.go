package view

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

// watched is a Watcher of which a test expects changes.
type watched struct {
	*testing.T
	w *Watcher
}

func (n *Node) watched(t *testing.T) *watched {
	t.Helper()
	w, err := n.Watch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return &watched{t, w}
}

// until reads pods until they are as wanted.
func (w *watched) until(what string, wanted func([]*Pod) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second*wait.Busyness())
	defer cancel()
	for {
		pods, err := w.w.Next(ctx)
		if err != nil {
			w.Fatalf("%s: %v", what, err)
		}
		if wanted(pods) {
			return
		}
	}
}

func TestEveryStepOfAPodIsSeenByAWatcher(t *testing.T) {
	w := newWorld(t)
	seen := w.node.watched(t)
	seen.until("no pods", func(pods []*Pod) bool { return len(pods) == 0 })
	state := func(want PodState) {
		t.Helper()
		seen.until(string(want), func(pods []*Pod) bool { return len(pods) == 1 && pods[0].State == want })
	}
	app := func(want AppState) {
		t.Helper()
		seen.until(string(want), func(pods []*Pod) bool {
			return len(pods) == 1 && len(pods[0].Apps) == 1 && pods[0].Apps[0].State == want
		})
	}
	d, sup := w.running("s")
	state(PodRunning)
	a := w.app(d, "c")
	app(AppCreating)
	p := w.runs(a)
	app(AppCreated)
	if err := a.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	app(AppRunning)
	w.end(p) // nothing is written
	app(AppExited)
	w.exits(d, a.Name(), "", abi.Status{Code: 1, Time: time.Now()})
	seen.until("exit", func(pods []*Pod) bool { return pods[0].Apps[0].Exit != nil })
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
	seen.until("no apps", func(pods []*Pod) bool { return len(pods[0].Apps) == 0 })
	w.end(sup)
	state(PodExited)
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen.until("no pods", func(pods []*Pod) bool { return len(pods) == 0 })

	ctx, cancel := context.WithTimeout(t.Context(), 3*settle)
	defer cancel()
	for { // of the steps before, at most
		if _, err := seen.w.Next(ctx); err != nil {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			break
		}
	}
}

func TestAWatcherWaitsForTheDataDirectory(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "a", "b")
	n, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	seen := n.watched(t)
	seen.until("nothing", func(pods []*Pod) bool { return len(pods) == 0 })
	const uuid = "00000000-0000-4000-8000-000000000000"
	if err := os.MkdirAll(filepath.Join(dir, "pods/run", uuid), 0o755); err != nil {
		t.Fatal(err)
	}
	seen.until("a directory", func(pods []*Pod) bool { return len(pods) == 1 && pods[0].State == PodAbandoned })
}

func TestEventsAreTheCallsAndTheChangesInTheOrderOfTime(t *testing.T) {
	w := newWorld(t)
	d, sup := w.running("s")
	a := w.app(d, "c")
	p := w.runs(a)
	if err := a.MarkStarted(); err != nil {
		t.Fatal(err)
	}
	call := func(e abi.Entrypoint, app string, code int) {
		t.Helper()
		if err := journal.Append(d.Path(), journal.Entry{Time: time.Now(), Entrypoint: e, App: app, Code: code, Error: "words"}); err != nil {
			t.Fatal(err)
		}
	}
	events := w.node.Events()
	defer events.Close()
	update := func() []string {
		t.Helper()
		pods, err := w.node.Pods()
		if err != nil {
			t.Fatal(err)
		}
		found, err := events.Update(pods)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		var last time.Time
		for _, e := range found {
			if e.Time.Before(last) || e.Pod != d.UUID() || e.ID != "s" {
				t.Errorf("%+v after %s", e, last)
			}
			last = e.Time
			what := e.App + " " + e.Exec + " " + e.State
			if e.Call != nil {
				what = fmt.Sprintf("%s call %s %d", e.App, e.Call.Entrypoint, e.Call.Code)
			}
			if e.Exit != nil {
				what += fmt.Sprintf(" %d", e.Exit.Code)
			}
			all = append(all, strings.Join(strings.Fields(what), " "))
		}
		return all
	}
	expect := func(want ...string) {
		t.Helper()
		if got := update(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	call(abi.AppStart, a.Name(), 0)
	expect("created", "c created", "c started", "c call app/start 0")
	expect()
	call(abi.Enter, a.Name(), 5)
	w.exits(d, a.Name(), "e", abi.Status{Code: 3, Time: time.Now()})
	expect("c call enter 5", "c e exited 3")
	w.end(p)
	expect("c exited")
	w.exits(d, a.Name(), "", abi.Status{Code: 137, Signal: 9, Time: time.Now()})
	expect("c exited 137")
	w.end(sup)
	expect("exited")
	if err := os.Remove(filepath.Join(d.Path(), "appsinfo", a.Name(), "app.json")); err != nil { // the first step of a removal
		t.Fatal(err)
	}
	expect("c deleting")
	if err := a.Remove(); err != nil {
		t.Fatal(err)
	}
	expect("c removed")
	call(abi.Stop, "", 0)
	if err := d.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("call stop 0", "removed")
}
