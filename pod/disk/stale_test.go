package disk

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/crash"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// gcMaker is a stage1 whose gc makes its tree visible, which takes a while.
type gcMaker struct {
	crash.Stopper
	t     *testing.T
	alone *sync.Mutex
}

func (g gcMaker) Attach(dir string) error {
	if !g.alone.TryLock() {
		g.t.Error("the tree is made visible for two gcs at a time")
		return nil
	}
	defer g.alone.Unlock()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	time.Sleep(10 * time.Millisecond)
	return root.MkdirAll("stage1/rootfs/rkt/status", 0o755)
}

func (g gcMaker) Call(_ context.Context, podDir string, _ int, r abi.Request) error {
	if r.Entrypoint == abi.GC {
		return g.Attach(podDir)
	}
	return nil
}

// A shim that starts and a `delete` that goes on in the background both remove stale
// pods.
func TestOneAtATimeRemovesAPod(t *testing.T) {
	s := newStore(t)
	for range 20 {
		d := newDir(t, s)
		d.shim.BootID = "00000000-0000-4000-8000-000000000000"
		writeJSON(t, filepath.Join(d.Path(), shimFile), d.shim)
		if err := d.ReleaseLock(); err != nil {
			t.Fatal(err)
		}
		alone := &sync.Mutex{}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				c := &Collector{Store: s, OpenStage1: func(dir string) (Stage1, error) {
					if _, err := os.Stat(dir); err != nil {
						return nil, err
					}
					return gcMaker{crash.Stopper{}, t, alone}, nil
				}}
				if err := c.CollectStale(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if left := places(t, s); len(left) != 0 {
			t.Fatalf("left: %v", left)
		}
	}
}

func BenchmarkCollectStaleWithNothingToDo(b *testing.B) {
	s := newStore(b)
	for range 40 {
		if err := newDir(b, s).Run(); err != nil {
			b.Fatal(err)
		}
	}
	c := &Collector{Store: s}
	for b.Loop() {
		if err := c.CollectStale(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// The id of a container whose `delete` has failed is free for another one, which has
// the same bundle directory and the same cgroup path.
func TestWhatIsStaleIsCollectedBesideANewContainerOfTheSameID(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "exited") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	old := filepath.Join(l.Bundle(), "rootfs")
	if err := errors.Join(unmountTree(old), os.Remove(filepath.Join(l.Bundle(), bundleFile))); err != nil {
		t.Fatal(err)
	}
	g, err := cgroup.Maker{}.Create(cgroup.Path{Spec: "/" + l.ID}, nil) // takes over the one that is empty
	if err != nil {
		t.Fatal(err)
	}
	lives := l.occupy(t)
	err = errors.Join(unix.Mount("tmpfs", old, "tmpfs", 0, ""), withRoot(l.Bundle(), func(b *os.Root) error {
		return writeRecord(b, bundleFile, bundleRecord{Version: recordVersion, DataDir: c.Store.dir, Pod: newUUID(), App: "new"})
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
	if left := places(t, c.Store); len(left) != 0 {
		t.Errorf("the old pod is left: %v", left)
	}
	if pids, err := g.Pids(); err != nil || !slices.Contains(pids, lives.Pid) {
		t.Errorf("the new container's processes are %v, %v; want %d", pids, err, lives.Pid)
	}
	if s, err := proc.ReadStat(lives.Pid); err != nil || s.State == 'Z' {
		t.Errorf("the new container's process was killed: %+v, %v", s, err)
	}
	if mounts, err := mountsBelow(l.Bundle()); err != nil || len(mounts) != 1 {
		t.Errorf("mounts of the new container: %v, %v", mounts, err)
	}
	if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
}

// innocent starts a process that belongs to no pod.
func innocent(t *testing.T) (pid int, start uint64) {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	start, err := proc.StartTime(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, start
}

func TestAnotherBootsPodIsRemovedAndNobodyIsSignalled(t *testing.T) {
	l := newLife(t)
	c := l.collector(t)
	d := newDir(t, c.Store)
	pid, start := innocent(t)
	bundle := t.TempDir()
	a, err := d.AddApp("c", bundle, &specs.Spec{})
	if err == nil {
		err = errors.Join(a.Update(func(r *AppRecord) { r.PID, r.StartTime = pid, start }),
			d.SetSupervisor(SupervisorRecord{PID: pid, StartTime: start, Leader: 0}), d.Run(), d.ReleaseLock())
	}
	if err != nil {
		t.Fatal(err)
	}
	const before = "00000000-0000-4000-8000-000000000000"
	var r bundleRecord
	decode(t, filepath.Join(bundle, bundleFile), &r)
	r.BootID = before
	writeJSON(t, filepath.Join(bundle, bundleFile), r)
	d.shim.BootID = before
	d.shim.Shim = ProcessRecord{PID: pid, StartTime: start} // "alive", but of another boot
	writeJSON(t, filepath.Join(d.Path(), shimFile), d.shim)

	if exit, err := c.Collect(t.Context(), bundle, "default", "c"); err != nil || exit.Found {
		t.Errorf("%+v, %v", exit, err)
	}
	var calls []abi.Entrypoint
	c.OpenStage1 = func(string) (Stage1, error) { return crash.Stopper{Calls: &calls}, nil }
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
	if left := places(t, c.Store); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if !proc.Alive(pid, start) {
		t.Error("another process was signalled")
	}
	if len(calls) != 1 || calls[0] != abi.GC {
		t.Errorf("entrypoints %v, want gc alone", calls)
	}
}

func TestStaleCollectionKnowsWhatIsNotItsOwn(t *testing.T) {
	l := newLife(t)
	c := l.collector(t)
	s := c.Store
	old := time.Now().Add(-time.Hour)
	uuids := map[string]string{}
	spare := spareOf(shimFile)
	for _, tc := range []struct {
		what, state, file string
		old               bool
	}{
		{"rkt's running pod", dirRun, "pod", true},
		{"rkt's prepared pod", "prepared", "pod", true},
		{"rkt's pod in preparation", dirPrepare, "pod", true},
		{"rkt's exited pod", dirExited, "pod", true},
		{"a pod that is being made", dirEmbryo, "", false},
		{"a pod that is being filled", dirPrepare, spare, false},
		{"a pod that is being removed", dirExited, podLockFile, false},
		{"stale: its maker died", dirEmbryo, "", true},
		{"stale: its maker died before it had exchanged shim.json", dirPrepare, spare, true},
		{"stale: its remover died before pod.lck, in prepare", dirPrepare, podLockFile, true},
		{"stale: its remover died before pod.lck, in run", dirRun, podLockFile, true},
		{"stale: its remover died before pod.lck", dirExited, podLockFile, true},
	} {
		uuids[tc.what] = newUUID()
		dir := s.path(tc.state, uuids[tc.what])
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if tc.file != "" {
			if err := os.WriteFile(filepath.Join(dir, tc.file), []byte("{}"), 0o640); err != nil {
				t.Fatal(err)
			}
		}
		if tc.old {
			if err := os.Chtimes(dir, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(s.path(dirRun, ""), "README"), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
	left := strings.Join(places(t, s), " ")
	for what, uuid := range uuids {
		if want := !strings.HasPrefix(what, "stale"); strings.Contains(left, uuid) != want {
			t.Errorf("%s: left is %v, want %v", what, !want, want)
		}
	}
}

func TestStaleCollectionLeavesTheExitToDelete(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "exited") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	if err := c.CollectStale(t.Context()); err != nil || len(places(t, c.Store)) != 1 {
		t.Fatalf("collected although its bundle waits for delete, or %v", err)
	}
	if err := unmountTree(filepath.Join(l.Bundle(), "rootfs")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(l.Bundle()); err != nil {
		t.Fatal(err)
	}
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
	l.NothingLeft(t)
}

// Servers of other containers collect as well, and have the lock of a pod meanwhile.
func TestWhoeverRemovesAPodIsNotTakenForItsSupervisor(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	d.shim.Shim.StartTime++ // its shim has ended before it had a supervisor
	writeJSON(t, filepath.Join(d.Path(), shimFile), d.shim)
	if err := d.ReleaseLock(); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(t.TempDir(), "begun")
	other := exec.Command("flock", "--exclusive", "--no-fork", d.Path(), "sh", "-c", "touch "+begun+"; exec sleep 1.5")
	if err := other.Start(); err != nil {
		t.Skip(err)
	}
	wait.Until(t, "the other one has the lock", func() bool { _, err := os.Stat(begun); return err == nil })
	c := &Collector{Store: s, OpenStage1: func(string) (Stage1, error) { return nil, errors.New("none") }}
	err := c.CollectStale(t.Context())
	if ended := other.Wait(); ended != nil {
		t.Errorf("the process that had the lock: %v", ended)
	}
	if err == nil {
		err = c.CollectStale(t.Context())
	}
	if err != nil || len(places(t, s)) != 0 {
		t.Errorf("left are %v: %v", places(t, s), err)
	}
}
