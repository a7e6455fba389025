package pod

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// needPids skips where no number of processes can be limited.
func needPids(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/sys/fs/cgroup/pids/cgroup.procs"); err == nil {
		return
	}
	if b, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); !strings.Contains(string(b), "pids") {
		t.Skip("there is no pids controller")
	}
}

// pidsMax returns the limit of an app's cgroup.
func (w *world) pidsMax(id string) string {
	w.t.Helper()
	a, err := w.app(AppID(id))
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(a.cgroup.Dir("pids"), "pids.max"))
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// requirements.md#T12
func TestUpdateIsForAppsThatHaveNotEnded(t *testing.T) {
	needPids(t)
	needFreezer(t)
	w := newWorld(t)
	update := func(n string) {
		t.Helper()
		if err := w.Update(t.Context(), "a", []byte(`{"pids":{"limit":`+n+`}}`)); err != nil {
			t.Error(err)
		}
		if got := w.pidsMax("a"); got != n {
			t.Errorf("pids.max is %s, want %s", got, n)
		}
	}
	w.mustCreate("a", "exec sleep 60")
	update("11")
	w.mustStart("a", "")
	update("12")
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	update("13")
	if err := w.Kill(t.Context(), "a", "", killSignal, true); err != nil {
		t.Fatal(err)
	}
	w.mustWait("a", "")
	if err := w.Update(t.Context(), "a", []byte(`{}`)); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("update of an app that has ended: %v", err)
	}
	w.mustDelete("a", "")
	if err := w.Update(t.Context(), "a", []byte(`{}`)); !errdefs.IsNotFound(err) {
		t.Errorf("update of an unknown app: %v", err)
	}
}

// requirements.md#T12
func TestTheStage1IsToldAndMayRefuse(t *testing.T) {
	needPids(t)
	w := newWorld(t)
	w.stage1.has[abi.AppUpdate] = true
	w.mustCreate("a", "exec sleep 60")
	if err := w.Update(t.Context(), "a", []byte(`{"pids":{"limit":21}}`)); err != nil {
		t.Fatal(err)
	}
	if !w.stage1.called(abi.AppUpdate) {
		t.Error("the stage1 was not told")
	}
	w.stage1.on(abi.AppUpdate, fails(errors.New("deliberate")))
	if err := w.Update(t.Context(), "a", []byte(`{"pids":{"limit":22}}`)); err == nil || !strings.Contains(err.Error(), "deliberate") {
		t.Errorf("update: %v", err)
	}
	if got := w.pidsMax("a"); got != "21" {
		t.Errorf("pids.max is %s after a refused update, want 21", got)
	}
	w.mustDelete("a", "")
}

func TestResourcesThatAreNoObjectAreRefused(t *testing.T) {
	for text, refused := range map[string]bool{
		`{"memory":{"limit":1,"hotness":7},"novel":{"x":1e-400}}`: false, // CheckResources names them
		`{"pids":[]}`: true, `[]`: true, ``: true, `null`: false,
	} {
		_, err := parseResources([]byte(text))
		if (err != nil) != refused || err != nil && (!strings.Contains(err.Error(), "linux.resources") || !errdefs.IsInvalidArgument(err)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// requirements.md#T8
func TestCheckpointAndRestoreAreTheStage1s(t *testing.T) {
	w, cp := newWorld(t), filepath.Join(t.TempDir(), "new/cp")
	w.mustCreate("a", "exec sleep 60")
	if err := w.Checkpoint(t.Context(), "a", abi.Checkpoint{Path: cp}); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "app/checkpoint") {
		t.Errorf("a stage1 that cannot: %v", err)
	}
	w.checkpoint = cp
	if _, err := w.create("b", "exit 0"); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "restore container b: stage1 fake has no app/checkpoint") {
		t.Errorf("restore: %v", err)
	}
	w.stage1.has[abi.AppCheckpoint] = true
	if err := w.Checkpoint(t.Context(), "a", abi.Checkpoint{Path: cp}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("of a created app: %v", err)
	}
	w.mustStart("a", "")
	if err := w.Checkpoint(t.Context(), "a", abi.Checkpoint{Path: cp}); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(cp); err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the checkpoint: %v, %v", info, err)
	}
	w.mustCreate("b", "exit 0")
	if added := w.stage1.callsOf(abi.AppAdd); added[len(added)-1].Checkpoint == nil || added[len(added)-1].Checkpoint.Path != cp {
		t.Errorf("app/add has %+v", added)
	}
	if got := w.events.words(); !slices.Contains(got, "checkpointed a") {
		t.Errorf("events %v", got)
	}
	w.mustDelete("b", "")
	w.end("a")
}

func FuzzParseResources(f *testing.F) {
	f.Add([]byte(`{"memory":{"limit":1},"blockIO":{"weightDevice":[{"major":1}]},"rdma":{"x":{}},"unified":{"a":"b"}}`))
	f.Add([]byte(`{"cpu":{"shares":{}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if res, err := parseResources(text); (res == nil) == (err == nil) {
			t.Errorf("%v, %v", res, err)
		}
	})
}
