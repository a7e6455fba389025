package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/crash"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

func (l life) collector(t testing.TB) *Collector {
	t.Helper()
	s, err := OpenStore(l.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	return &Collector{Store: s, OpenStage1: l.stage1}
}

// collect does what containerd and the next `start` do after a crash.
func (l life) collect(t *testing.T) CollectedExit {
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
	return exit
}

func TestAShimThatDiesAtAnyStepLeavesNothingAfterItsCollection(t *testing.T) {
	crash.AtEachStep(t, "the life of a pod", 20, func(_ int, step string) bool {
		l := newLife(t)
		died := l.Until(t, "shim", step)
		exit := l.collect(t)
		l.NothingLeft(t)
		if !died && exit.Found {
			t.Errorf("found %+v after a complete deletion", exit)
		}
		return died
	})
}

func TestADeleteThatDiesAtAnyStepCanBeRepeated(t *testing.T) {
	crash.AtEachStep(t, "a collection", 8, func(_ int, step string) bool {
		l := newLife(t)
		if !l.Until(t, "shim", "exited") {
			t.Fatal("it does not get there")
		}
		died := l.Until(t, "collect", step)
		exit := l.collect(t)
		l.NothingLeft(t)
		if !exit.Found || exit.Code != 7 || exit.PID == 0 {
			t.Errorf("requirements.md#D5: exit %+v, recorded was 7", exit)
		}
		return died
	})
}

func TestADeleteWaitsForTheLivingShimToRemoveThePod(t *testing.T) {
	l := newLife(t)
	var spec specs.Spec
	decode(t, filepath.Join(l.Bundle(), "config.json"), &spec)
	c := l.collector(t)
	d, err := c.Store.Create(testKey, Stage1Record{Name: "fake"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.AddApp(l.ID, l.Bundle(), &spec)
	if err != nil {
		t.Fatal(err)
	}
	release, err := d.Hold()
	if err == nil {
		err = errors.Join(err, d.MarkExited())
	}
	if err != nil {
		t.Fatal(err)
	}
	// The app's entry in the manifest can be removed only under the lock, which the test
	// holds.
	if err := os.RemoveAll(a.Path()); err != nil {
		t.Fatal(err)
	}
	wait := crash.Waits(t, "Collect", func() error {
		_, err := l.collector(t).Collect(t.Context(), l.Bundle(), "default", l.ID)
		return err
	})
	if err := d.Remove(t.Context()); err != nil {
		t.Error(err)
	}
	release()
	if err := wait(); err != nil {
		t.Error(err)
	}
	l.NothingLeft(t)
}

func TestADeleteTakesOverFromAShimThatDiesWhileItRemovesThePod(t *testing.T) {
	for _, step := range []string{"held", "rename " + dirExited, "remove content"} {
		l := newLife(t)
		shim := l.HaltAt(t, step)
		wait := crash.Waits(t, fmt.Sprintf("Collect at %q", step), func() error {
			_, err := l.collector(t).Collect(t.Context(), l.Bundle(), "default", l.ID)
			return err
		})
		_ = shim.Kill()
		_, _ = shim.Wait()
		if err := wait(); err != nil {
			t.Errorf("after %q: %v", step, err)
		}
		l.NothingLeft(t)
	}
}

// The stage1 of a living shim takes its time to end. The client does not wait for that: if
// the shim dies meanwhile, Finish does the rest, in the process that `delete` leaves running.
func TestFinishTakesOverFromAShimThatDiesAfterTheAnswerOfDelete(t *testing.T) {
	l := newLife(t)
	shim := l.HaltAt(t, "rename "+dirExited)
	c := l.collector(t)
	began := time.Now()
	exit, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID)
	if err != nil || !exit.Left {
		t.Fatalf("Collect beside a shim at work: %+v, %v", exit, err)
	}
	if took := time.Since(began); took < removalPatience || took > 2*removalPatience*wait.Busyness() {
		t.Errorf("Collect took %s", took)
	}
	if err := os.RemoveAll(l.Bundle()); err != nil {
		t.Fatal(err)
	}
	wait := crash.Waits(t, "Finish beside a living shim", func() error { return l.collector(t).Finish(t.Context(), exit.Rest, false) })
	_ = shim.Kill()
	_, _ = shim.Wait()
	if err := wait(); err != nil {
		t.Error(err)
	}
	l.NothingLeft(t)
	if err := c.Finish(t.Context(), exit.Rest, false); err != nil {
		t.Errorf("with nothing left: %v", err)
	}
}

// A container that cannot be collected in time is collected later, with the exit that
// was recorded.
func TestFinishCollectsAContainerThatCollectCouldNot(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "exited") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	late, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c.Store.Fault = func(step string) {
		if step == "record exit" {
			l.occupy(t)
		}
	}
	exit, err := c.Collect(late, l.Bundle(), "default", l.ID)
	if err == nil || !exit.Left || exit.Code != 7 {
		t.Fatalf("Collect with a busy cgroup: %+v, %v", exit, err)
	}
	if err := l.collector(t).Finish(t.Context(), exit.Rest, false); err != nil {
		t.Error(err)
	}
	l.NothingLeft(t)
}

// occupy puts a process into the app's cgroup.
func (l life) occupy(t *testing.T) *os.Process {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + l.ID + "/cgroup.procs")
	v2, _ := filepath.Glob("/sys/fs/cgroup/" + l.ID + "/cgroup.procs")
	for _, file := range append(v1, v2...) {
		if err := os.WriteFile(file, []byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return cmd.Process
}

// requirements.md#D5
func TestWhatWasNotRecordedIs137(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	exit := l.collect(t)
	l.NothingLeft(t)
	if !exit.Found || exit.Code != 137 || exit.PID == 0 || time.Since(exit.At) > time.Minute {
		t.Errorf("exit %+v", exit)
	}
	if b, err := os.ReadFile(filepath.Join(l.Base, "poststop")); err != nil || string(b) != "x\n" {
		t.Errorf("poststop: %q, %v", b, err)
	}
}

func TestAHungStage1CostsOnlyItsShareOfTheTime(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	var calls []abi.Entrypoint
	c.OpenStage1 = func(string) (Stage1, error) { return crash.Stopper{Calls: &calls, Hang: true}, nil }
	begin := time.Now()
	if _, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 4*time.Second*wait.Busyness() {
		t.Errorf("it took %s: containerd kills delete after 5 s", d)
	}
	if len(calls) == 0 || calls[0] != abi.AppStop {
		t.Errorf("entrypoints called: %v", calls)
	}
	l.NothingLeft(t)
}

func TestAStage1ThatCannotBeOpenedHindersNothing(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	c := l.collector(t)
	c.OpenStage1 = func(string) (Stage1, error) { return nil, errors.New("image removed") }
	if _, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID); err != nil {
		t.Error(err)
	}
	l.NothingLeft(t)
}

// requirements.md#D3
func TestOrdinaryBundlesAreNoneOfOurBusiness(t *testing.T) {
	l := newLife(t)
	exit, err := l.collector(t).Collect(t.Context(), l.Bundle(), "default", l.ID)
	if err != nil || exit.Found {
		t.Errorf("%+v, %v", exit, err)
	}
	exit, err = l.collector(t).Collect(t.Context(), filepath.Join(l.Base, "no-bundle"), "default", l.ID)
	if err != nil || exit.Found {
		t.Errorf("without a bundle: %+v, %v", exit, err)
	}
}

// requirements.md#D3
func TestALivingShimsOtherAppsAreNotTouched(t *testing.T) {
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
	exit, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID)
	if err != nil || !exit.Found || exit.Code != 137 {
		t.Errorf("%+v, %v", exit, err)
	}
	if pids, err := g.Pids(); err != nil || len(pids) != 0 {
		t.Errorf("requirements.md#D4: processes %v live, %v", pids, err)
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
	l.NothingLeft(t)
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

func TestAReusedPidIsNotSignalled(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "live") {
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
	l.NothingLeft(t)
	if !proc.Alive(pid, start) {
		t.Error("another process was killed")
	}
}

func TestTwoDeletesOfOnePodAtATimeLeaveNothing(t *testing.T) {
	l := newLife(t)
	if !l.Until(t, "shim", "live") {
		t.Fatal("it does not get there")
	}
	errs := make(chan error, 2)
	for range 2 {
		go func() {
			c := &Collector{Store: l.collector(t).Store, OpenStage1: l.stage1}
			_, err := c.Collect(context.Background(), l.Bundle(), "default", l.ID)
			errs <- err
		}()
	}
	for range 2 {
		// One Collect may find a pod that the other has half removed, and then returns an
		// error.
		if err := <-errs; err != nil {
			t.Log(err)
		}
	}
	l.collect(t)
	l.NothingLeft(t)
}

// When the shim of a group has died, its apps are deleted at the same time.
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
	// At a later moment nothing is left of the pod except its directory.
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

// A server that does not answer any more keeps its pod, whose container containerd has forgotten.
func TestFinishKillsAShimThatHangs(t *testing.T) {
	l := newLife(t)
	shim := l.HaltAt(t, "held")
	if err := shim.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c := l.collector(t)
	exit, err := c.Collect(t.Context(), l.Bundle(), "default", l.ID)
	if err != nil || !exit.Left {
		t.Fatalf("Collect beside a shim that hangs: %+v, %v", exit, err)
	}
	if err := c.Finish(t.Context(), exit.Rest, true); err != nil {
		t.Error(err)
	}
	_, _ = shim.Wait()
	l.NothingLeft(t)
}

// containerd may know the other containers of the pod, and speak to their server when it goes on.
func TestFinishSparesAShimThatHangsAndHasAnotherApp(t *testing.T) {
	s := newStore(t)
	d := newDir(t, s)
	hung := exec.Command("sleep", "300")
	if err := hung.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = hung.Wait()
		close(ended)
	}()
	defer func() { _ = hung.Process.Kill(); <-ended }()
	start, err := proc.StartTime(hung.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	d.shim.Shim = ProcessRecord{PID: hung.Process.Pid, StartTime: start}
	var names []AppName
	for _, id := range []string{"one", "two"} {
		a, err := d.AddApp(id, t.TempDir(), &specs.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, AppName(a.Name()))
	}
	p := &podCollector{dir: d}
	if err := p.killUnused(t.Context(), names[0]); err != nil || !proc.Alive(hung.Process.Pid, start) {
		t.Errorf("the shim of two apps was killed for one of them: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(d.Path(), appsInfoDir, string(names[1]))); err != nil {
		t.Fatal(err)
	}
	if err := p.killUnused(t.Context(), names[0]); err != nil || proc.Alive(hung.Process.Pid, start) {
		t.Errorf("the shim of one app was not killed: %v", err)
	}
}
