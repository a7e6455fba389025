package disk

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/journal"
)

// A hook tears down a network whose server is slow: Delete is answered, and the hook does its work all the same.
func TestAHookOutlastsTheCallThatBeganIt(t *testing.T) {
	d := newDir(t, newStore(t))
	dir := t.TempDir()
	fifo, out := filepath.Join(dir, "fifo"), filepath.Join(dir, "out")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	spec := &specs.Spec{Version: "1.2.0", Hooks: &specs.Hooks{Poststop: []specs.Hook{
		{Path: "/bin/sh", Args: []string{"sh", "-c", "read x <" + fifo + "; echo $x >>" + out}},
		{Path: "/bin/sh", Args: []string{"sh", "-c", "echo next >>" + out}},
	}}}
	a, err := d.AddApp("c", t.TempDir(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Poststop(ctx); err == nil || !strings.Contains(err.Error(), "hooks go on") {
		t.Errorf("the call ended with %v", err)
	}
	waited := make(chan struct{})
	go func() { defer close(waited); d.store.Hooks.Wait() }()
	wait.Blocked(t, "disk.(*Hooks).Wait", 1)
	if err := a.RemoveFiles(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(fifo, []byte("done\n"), 0); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "the end of the hooks", waited)
	if text, err := os.ReadFile(out); err != nil || string(text) != "done\nnext\n" {
		t.Errorf("the hooks have written %q, %v", text, err)
	}
}

func TestTheJournalNamesAHookThatWasKilled(t *testing.T) {
	d := newDir(t, newStore(t))
	limit := 1
	spec := &specs.Spec{Version: "1.2.0", Hooks: &specs.Hooks{Poststop: []specs.Hook{
		{Path: "/bin/sh", Args: []string{"sh", "-c", "exec sleep 60"}, Timeout: &limit, Env: []string{"PATH=/bin:/usr/bin"}},
	}}}
	a, err := d.AddApp("c", t.TempDir(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Poststop(soon(t)); err == nil || !strings.Contains(err.Error(), "killed, because it has not ended within 1s") {
		t.Errorf("the hook ended with %v", err)
	}
	entries, err := journal.Read(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(entries, func(e journal.Entry) bool {
		return e.Entrypoint == journal.Poststop && slices.Equal(e.Argv, []string{"/bin/sh"}) && e.App == string(a.name) && strings.Contains(e.Error, "killed")
	}) {
		t.Errorf("the journal has %+v", entries)
	}
}
