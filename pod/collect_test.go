package pod

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/abi"
)

func (l life) collector(t testing.TB) *Collector {
	t.Helper()
	s, err := OpenStore(filepath.Join(l.base, "rkt"))
	if err != nil {
		t.Fatal(err)
	}
	return &Collector{Store: s, OpenStage1: l.stage1}
}

// collect does what containerd and the next `start` do after a crash.
func (l life) collect(t *testing.T) CollectedExit {
	t.Helper()
	c := l.collector(t)
	exit, err := c.Collect(t.Context(), l.bundle(), "default", l.id)
	if err != nil {
		t.Error(err)
	}
	if again, err := c.Collect(t.Context(), l.bundle(), "default", l.id); err != nil || again.Code != exit.Code || again.PID != exit.PID {
		t.Errorf("a second time: %+v, %v; the first was %+v", again, err, exit)
	}
	// What is as old as a crash is not collected yet, in case it is alive.
	for _, p := range places(t, c.Store) {
		old := time.Now().Add(-time.Hour)
		_ = os.Chtimes(filepath.Join(c.Store.dir, "pods", p), old, old)
	}
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
	return exit
}

// nothingLeft checks that the container and its pod are gone in every respect.
func (l life) nothingLeft(t *testing.T) {
	t.Helper()
	if left := places(t, l.collector(t).Store); len(left) != 0 {
		t.Errorf("pods left: %v", left)
	}
	if left, err := mountsBelow(l.base); err != nil || len(left) != 0 {
		t.Errorf("mounts left: %v, %v", left, err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		if left, _ := filepath.Glob(pattern + l.id + "*"); len(left) != 0 {
			t.Errorf("cgroups left: %v", left)
		}
	}
	for _, pid := range l.pids() {
		if s, err := proc.ReadStat(pid); err == nil && s.State != 'Z' && s.State != 'X' {
			t.Errorf("process left: %+v", s)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(l.base, "poststop")); len(b) > 2 {
		t.Errorf("the poststop hook ran more than once: %q", b)
	}
}

func TestAShimThatDiesAtAnyStepLeavesNothingAfterItsCollection(t *testing.T) {
	for n := 1; ; n++ {
		l := newLife(t)
		died := l.until(t, "shim", strconv.Itoa(n))
		exit := l.collect(t)
		l.nothingLeft(t)
		if t.Failed() {
			t.Fatalf("died at step %d", n)
		}
		if !died {
			if exit.Found {
				t.Errorf("found %+v after a complete deletion", exit)
			}
			t.Logf("a life has %d steps", n-1)
			if n < 20 {
				t.Errorf("a life has %d steps: the steps are not counted", n)
			}
			return
		}
	}
}

func TestADeleteThatDiesAtAnyStepCanBeRepeated(t *testing.T) {
	for n := 1; ; n++ {
		l := newLife(t)
		if !l.until(t, "shim", "exited") {
			t.Fatal("it does not get there")
		}
		died := l.until(t, "collect", strconv.Itoa(n))
		exit := l.collect(t)
		l.nothingLeft(t)
		if !exit.Found || exit.Code != 7 || exit.PID == 0 {
			t.Errorf("D5: exit %+v, recorded was 7", exit)
		}
		if t.Failed() {
			t.Fatalf("died at step %d", n)
		}
		if !died {
			t.Logf("a collection has %d steps", n-1)
			if n < 8 {
				t.Errorf("a collection has %d steps: the steps are not counted", n)
			}
			return
		}
	}
}

func TestADeleteWaitsForTheLivingShimToRemoveThePod(t *testing.T) {
	l := newLife(t)
	var spec specs.Spec
	decode(t, filepath.Join(l.bundle(), "config.json"), &spec)
	c := l.collector(t)
	d, err := c.Store.Create(testKey, Stage1Record{Name: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.AddApp(AppID(l.id), l.bundle(), &spec)
	if err != nil {
		t.Fatal(err)
	}
	release, err := d.hold()
	if err == nil {
		err = errors.Join(err, d.MarkExited())
	}
	if err != nil {
		t.Fatal(err)
	}
	// Its entry goes under the lock that is being held.
	if err := os.RemoveAll(a.Path()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.collector(t).Collect(t.Context(), l.bundle(), "default", l.id)
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := d.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	l.nothingLeft(t)
}

func TestADeleteTakesOverFromAShimThatDiesWhileItRemovesThePod(t *testing.T) {
	for _, step := range []string{"held", "rename " + dirExited, "remove content"} {
		l := newLife(t)
		shim := l.haltAt(t, step)
		done := make(chan error, 1)
		go func() {
			_, err := l.collector(t).Collect(t.Context(), l.bundle(), "default", l.id)
			done <- err
		}()
		select {
		case err := <-done:
			t.Fatalf("at %q it did not wait: %v", step, err)
		case <-time.After(300 * time.Millisecond):
		}
		_ = shim.Kill()
		_, _ = shim.Wait()
		if err := <-done; err != nil {
			t.Errorf("after %q: %v", step, err)
		}
		l.nothingLeft(t)
	}
}

// The stage1 of a living shim takes its time to end: the client does not wait for that,
// and if the shim dies meanwhile, what `delete` leaves behind does the work.
func TestFinishTakesOverFromAShimThatDiesAfterTheAnswerOfDelete(t *testing.T) {
	l := newLife(t)
	shim := l.haltAt(t, "rename "+dirExited)
	c := l.collector(t)
	began := time.Now()
	exit, err := c.Collect(t.Context(), l.bundle(), "default", l.id)
	if err != nil || exit.Rest == "" {
		t.Fatalf("Collect beside a shim at work: %+v, %v", exit, err)
	}
	if took := time.Since(began); took < removalPatience || took > 2*removalPatience {
		t.Errorf("Collect took %s", took)
	}
	if err := os.RemoveAll(l.bundle()); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.collector(t).Finish(t.Context(), exit.Rest) }()
	select {
	case err := <-done:
		t.Fatalf("Finish did not wait for the living shim: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	_ = shim.Kill()
	_, _ = shim.Wait()
	if err := <-done; err != nil {
		t.Error(err)
	}
	l.nothingLeft(t)
	if err := c.Finish(t.Context(), exit.Rest); err != nil {
		t.Errorf("with nothing left: %v", err)
	}
}

// A container that cannot be collected in time is collected later, with the exit that
// was recorded.
func TestFinishCollectsAContainerThatCollectCouldNot(t *testing.T) {
	l := newLife(t)
	if !l.until(t, "shim", "exited") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	late, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c.Store.fault = func(step string) {
		if step == "record exit" {
			l.occupy(t)
		}
	}
	exit, err := c.Collect(late, l.bundle(), "default", l.id)
	if err == nil || exit.Rest == "" || exit.Code != 7 {
		t.Fatalf("Collect with a busy cgroup: %+v, %v", exit, err)
	}
	if err := l.collector(t).Finish(t.Context(), exit.Rest); err != nil {
		t.Error(err)
	}
	l.nothingLeft(t)
}

// occupy puts a process into the app's cgroup.
func (l life) occupy(t *testing.T) *os.Process {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + l.id + "/cgroup.procs")
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + l.id + "/cgroup.procs")
	for _, file := range append(v1, v2...) {
		if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return cmd.Process
}

// The id of a container whose `delete` has failed is free for another one, which has
// the same bundle directory and the same cgroup path.
func TestWhatIsStaleIsCollectedBesideANewContainerOfTheSameID(t *testing.T) {
	l := newLife(t)
	if !l.until(t, "shim", "exited") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	old := filepath.Join(l.bundle(), "rootfs")
	if err := errors.Join(unmountTree(old), os.Remove(filepath.Join(l.bundle(), bundleFile))); err != nil {
		t.Fatal(err)
	}
	g, err := cgroup.Create(cgroup.Path{Spec: "/" + l.id}, nil) // takes over the one that is empty
	if err != nil {
		t.Fatal(err)
	}
	lives := l.occupy(t)
	err = errors.Join(unix.Mount("tmpfs", old, "tmpfs", 0, ""), withRoot(l.bundle(), func(b *os.Root) error {
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
	if mounts, err := mountsBelow(l.bundle()); err != nil || len(mounts) != 1 {
		t.Errorf("mounts of the new container: %v, %v", mounts, err)
	}
	if err := errors.Join(g.Kill(t.Context()), g.Remove(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestD5WhatWasNotRecordedIs137(t *testing.T) {
	l := newLife(t)
	if !l.until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	exit := l.collect(t)
	l.nothingLeft(t)
	if !exit.Found || exit.Code != 137 || exit.PID == 0 || time.Since(exit.At) > time.Minute {
		t.Errorf("exit %+v", exit)
	}
	if b, err := os.ReadFile(filepath.Join(l.base, "poststop")); err != nil || string(b) != "x\n" {
		t.Errorf("poststop: %q, %v", b, err)
	}
}

func TestAHungStage1CostsOnlyItsShareOfTheTime(t *testing.T) {
	l := newLife(t)
	if !l.until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	var calls []abi.Entrypoint
	c.OpenStage1 = func(string) (Stage1, error) { return stopper{calls: &calls, hang: true}, nil }
	begin := time.Now()
	if _, err := c.Collect(t.Context(), l.bundle(), "default", l.id); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 4*time.Second {
		t.Errorf("it took %s: containerd kills delete after 5 s", d)
	}
	if len(calls) == 0 || calls[0] != abi.AppStop {
		t.Errorf("entrypoints called: %v", calls)
	}
	l.nothingLeft(t)
}

func TestAStage1ThatCannotBeOpenedHindersNothing(t *testing.T) {
	l := newLife(t)
	if !l.until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	c.OpenStage1 = func(string) (Stage1, error) { return nil, errors.New("image removed") }
	if _, err := c.Collect(t.Context(), l.bundle(), "default", l.id); err != nil {
		t.Error(err)
	}
	l.nothingLeft(t)
}

func TestD3OrdinaryBundlesAreNoneOfOurBusiness(t *testing.T) {
	l := newLife(t)
	exit, err := l.collector(t).Collect(t.Context(), l.bundle(), "default", l.id)
	if err != nil || exit.Found {
		t.Errorf("%+v, %v", exit, err)
	}
	exit, err = l.collector(t).Collect(t.Context(), filepath.Join(l.base, "no-bundle"), "default", l.id)
	if err != nil || exit.Found {
		t.Errorf("without a bundle: %+v, %v", exit, err)
	}
}

func TestD3ALivingShimsOtherAppsAreNotTouched(t *testing.T) {
	l := newLife(t)
	c := l.collector(t)
	d := newDir(t, c.Store) // this process is its shim
	if err := d.Run(); err != nil {
		t.Fatal(err)
	}
	a, g, err := l.addApp(c.Store, d)
	if err != nil {
		t.Fatal(err)
	}
	sibling, err := d.AddApp("sibling", t.TempDir(), &specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := c.Collect(t.Context(), l.bundle(), "default", l.id)
	if err != nil || !exit.Found || exit.Code != 137 {
		t.Errorf("%+v, %v", exit, err)
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("D4: processes %v live, %v", pids, err)
	}
	if names, err := d.apps(); err != nil || len(names) != 1 || string(names[0]) != sibling.Name() {
		t.Errorf("apps %v, %v; want %s", names, err, sibling.Name())
	}
	// The shim goes on as if nothing had happened.
	if err := errors.Join(a.Remove(), sibling.Update(func(r *AppRecord) { r.PID = 1 }), sibling.Remove()); err != nil {
		t.Error(err)
	}
	if err := c.CollectStale(t.Context()); err != nil || len(places(t, c.Store)) != 1 {
		t.Errorf("the pod of a living shim was collected, or %v", err)
	}
	if err := d.Remove(soon(t)); err != nil {
		t.Error(err)
	}
	l.nothingLeft(t)
}

func TestRecordsThatNameAnotherContainerAreRefused(t *testing.T) {
	l := newLife(t)
	c := l.collector(t)
	d := newDir(t, c.Store)
	bundle := t.TempDir()
	if _, err := d.AddApp("c", bundle, &specs.Spec{}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ ns, id, want string }{
		{"other", "c", "namespace"}, {"default", "d", "container c"},
	} {
		if _, err := c.Collect(t.Context(), bundle, tc.ns, tc.id); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s in %s: %v", tc.id, tc.ns, err)
		}
	}
	for _, r := range []bundleRecord{{Pod: "../../../etc"}, {Pod: d.UUID(), App: "../../x"}} {
		r.BootID, r.DataDir = d.shim.BootID, c.Store.dir
		writeJSON(t, filepath.Join(bundle, bundleFile), r)
		if _, err := c.Collect(t.Context(), bundle, "default", "c"); err == nil {
			t.Errorf("accepted %+v", r)
		}
	}
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, b, 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// innocent starts a process that has no part in anything.
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
	d.shim.Shim = processRecord{PID: pid, StartTime: start} // "alive", but of another boot
	writeJSON(t, filepath.Join(d.Path(), shimFile), d.shim)

	if exit, err := c.Collect(t.Context(), bundle, "default", "c"); err != nil || exit.Found {
		t.Errorf("%+v, %v", exit, err)
	}
	var calls []abi.Entrypoint
	c.OpenStage1 = func(string) (Stage1, error) { return stopper{calls: &calls}, nil }
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
	if left := places(t, c.Store); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if !proc.Alive(pid, start) {
		t.Error("somebody was signalled")
	}
	if len(calls) != 1 || calls[0] != abi.GC {
		t.Errorf("entrypoints %v, want gc alone", calls)
	}
}

func TestAReusedPidIsNotSignalled(t *testing.T) {
	l := newLife(t)
	if !l.until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	pid, start := innocent(t)
	c := l.collector(t)
	d, err := c.Store.find(strings.TrimPrefix(places(t, c.Store)[0], "run/"))
	if err != nil {
		t.Fatal(err)
	}
	d.close()
	real := *d.shim.Supervisor
	if err := proc.Signal(real.PID, real.StartTime, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.shim.Supervisor = &SupervisorRecord{PID: pid, StartTime: start + 1}
	writeJSON(t, filepath.Join(d.Path(), shimFile), d.shim)
	l.collect(t)
	l.nothingLeft(t)
	if !proc.Alive(pid, start) {
		t.Error("somebody else was killed")
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
	if !l.until(t, "shim", "exited") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	if err := c.CollectStale(t.Context()); err != nil || len(places(t, c.Store)) != 1 {
		t.Fatalf("collected although its bundle waits for delete, or %v", err)
	}
	if err := unmountTree(filepath.Join(l.bundle(), "rootfs")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(l.bundle()); err != nil {
		t.Fatal(err)
	}
	if err := c.CollectStale(t.Context()); err != nil {
		t.Error(err)
	}
	l.nothingLeft(t)
}

func TestTwoDeletesOfOnePodAtATimeLeaveNothing(t *testing.T) {
	l := newLife(t)
	if !l.until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			c := &Collector{Store: l.collector(t).Store, OpenStage1: l.stage1}
			_, err := c.Collect(context.Background(), l.bundle(), "default", l.id)
			errs <- err
		}()
	}
	for range 2 {
		// One may meet what the other has half removed, and is told so.
		if err := <-errs; err != nil {
			t.Log(err)
		}
	}
	l.collect(t)
	l.nothingLeft(t)
}

// The apps of a group are deleted at once when their shim has died.
func TestADeleteMeetsAPodThatAnotherOneRemoves(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	apps := filepath.Join(d.Path(), appsInfoDir)
	for range 2000 { // that it is removed between open and read
		var wg sync.WaitGroup
		wg.Go(func() { _ = os.Remove(apps) })
		names, err := d.apps()
		wg.Wait()
		if err != nil || len(names) > 0 {
			t.Fatalf("apps %q, %v", names, err)
		}
		if err := os.Mkdir(apps, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	// And later: of what the pod had, the directory is left.
	bundle := t.TempDir()
	writeJSON(t, filepath.Join(bundle, bundleFile), bundleRecord{
		Version: 1, BootID: d.shim.BootID, DataDir: s.dir, Pod: d.UUID(), App: "c-1", Exit: &exitRecord{PID: 7, Code: 42},
	})
	if err := errors.Join(os.Remove(apps), os.Remove(filepath.Join(d.Path(), shimFile))); err != nil {
		t.Fatal(err)
	}
	exit, err := (&Collector{Store: s}).Collect(t.Context(), bundle, "default", "c")
	if err != nil || !exit.Found || exit.Code != 42 {
		t.Errorf("%+v, %v", exit, err)
	}
}
