package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
)

// needFreezer skips where no cgroup can be frozen.
func needFreezer(t *testing.T) {
	t.Helper()
	for _, file := range []string{"/sys/fs/cgroup/freezer/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"} {
		if _, err := os.Stat(file); err == nil {
			return
		}
	}
	t.Skip("the freezer is not mounted")
}

// ticking is a script that makes a file longer as long as it runs.
func ticking(t *testing.T) (script string, length func() int64) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ticks")
	return "while :; do echo >> " + file + "; sleep 0.01; done", func() int64 {
		st, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return st.Size()
	}
}

// pausedApp returns a world with an app that ticks and is paused.
func pausedApp(t *testing.T) (w *world, length func() int64) {
	t.Helper()
	needFreezer(t)
	w = newWorld(t)
	script, length := ticking(t)
	w.mustCreate("a", script)
	w.mustStart("a", "")
	wait.Until(t, "it ticks", func() bool { return length() > 0 })
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	return w, length
}

func (w *world) mustBe(id, exec string, want State) {
	w.t.Helper()
	if st, err := w.Status(AppID(id), ExecID(exec)); err != nil || st.State != want {
		w.t.Errorf("%s %s is %s, %v; want %s", id, exec, st.State, err, want)
	}
}

// end kills an app and deletes it.
func (w *world) end(id string) {
	w.t.Helper()
	if err := w.Kill(w.t.Context(), AppID(id), "", killSignal, true); err != nil && !errdefs.IsNotFound(err) {
		w.t.Error(err)
	}
	w.mustWait(id, "")
	w.mustDelete(id, "")
}

// requirements.md#T7
func TestPauseStopsTheAppAndItsExecsUntilResume(t *testing.T) {
	needFreezer(t)
	w := newWorld(t)
	script, length := ticking(t)
	w.mustCreate("a", script)
	if err := w.Pause(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "cannot pause a created process") {
		t.Errorf("pause of a created app: %v", err)
	}
	w.mustStart("a", "")
	execScript, execLength := ticking(t)
	w.mustAddExec("a", "e", execScript)
	w.mustAddExec("a", "waiting", "exit 0")
	w.mustStart("a", "e")
	if err := w.Resume(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("resume of a running app: %v", err)
	}
	for range 3 {
		wait.Until(t, "both run", func() bool { return length() > 0 && execLength() > 0 })
		if err := w.Pause(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		w.mustBe("a", "", Paused)
		w.mustBe("a", "e", Paused)
		w.mustBe("a", "waiting", Paused)
		before := length() + execLength()
		wait.Still(t, "the files of what is paused", func() int64 { return length() + execLength() })
		if err := w.Pause(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("second pause: %v", err)
		}
		if err := w.Resume(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		w.mustBe("a", "", Running)
		w.mustBe("a", "e", Running)
		wait.Until(t, "both go on", func() bool { return length()+execLength() > before+2 })
	}
	w.end("a")
	if err := w.Pause(t.Context(), "a"); !errdefs.IsNotFound(err) {
		t.Errorf("pause of a deleted app: %v", err)
	}
	want := []string{"created a", "exec-added a/e", "exec-added a/waiting", "started a", "exec-started a/e"}
	for range 3 {
		want = append(want, "paused a", "resumed a")
	}
	want = append(want, "exited a/e", "exited a", "deleted a")
	got := w.events.words()
	slices.Sort(want)
	if order := slices.Index(got, "started a") < slices.Index(got, "paused a"); !order {
		t.Errorf("events %v", got)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}

// requirements.md#T7
func TestAPausedAppRefusesWhatNeedsItsProcesses(t *testing.T) {
	w, _ := pausedApp(t)
	if _, err := w.Start(t.Context(), "a", ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start: %v", err)
	}
	if _, err := w.Delete(t.Context(), "a", ""); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "paused") {
		t.Errorf("delete: %v", err)
	}
	err := w.AddExec(t.Context(), "a", ExecConfig{ID: "e", Process: readProcess(t, `{"args":["sh"],"cwd":"/"}`), Stdio: &noStdio{}})
	if !errdefs.IsFailedPrecondition(err) {
		t.Errorf("exec: %v", err)
	}
	if infos, err := w.Pids(t.Context(), "a"); err != nil || len(infos) == 0 {
		t.Errorf("pids: %v, %v", infos, err)
	}
	w.mustBe("a", "", Paused)
	if err := w.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.end("a")
}

// requirements.md#T7
func TestAnExecThatWasAddedBeforeThePauseDoesNotStartInIt(t *testing.T) {
	needFreezer(t)
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	w.mustAddExec("a", "e", "exit 4")
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Start(t.Context(), "a", "e"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "paused") {
		t.Errorf("start: %v", err)
	}
	if err := w.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.mustStart("a", "e")
	if e := w.mustWait("a", "e"); e.Code != 4 {
		t.Errorf("exit %+v", e)
	}
	w.end("a")
}

// requirements.md#T9
func TestAPausedAppCanBeKilled(t *testing.T) {
	for name, all := range map[string]bool{"its first process": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			w, _ := pausedApp(t)
			if err := w.Kill(t.Context(), "a", "", killSignal, all); err != nil {
				t.Fatal(err)
			}
			if e := w.mustWait("a", ""); e.Code != 137 {
				t.Errorf("exit %+v", e)
			}
			if err := w.Resume(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) {
				t.Errorf("resume after the end: %v", err)
			}
			w.mustDelete("a", "")
		})
	}
}

// requirements.md#T9
func TestOtherSignalsReachAPausedAppWhenItIsResumed(t *testing.T) {
	needFreezer(t)
	w := newWorld(t)
	path, next := scriptLines(t)
	w.mustCreate("a", "trap 'echo usr1 > "+path+"; exit 5' USR1; echo up > "+path+"; while :; do sleep 0.01; done")
	w.mustStart("a", "")
	next()
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGUSR1), true); err != nil {
		t.Fatal(err)
	}
	w.mustBe("a", "", Paused)
	if err := w.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if line := next(); line != "usr1\n" {
		t.Errorf("%q", line)
	}
	if e := w.mustWait("a", ""); e.Code != 5 {
		t.Errorf("exit %+v", e)
	}
	w.mustDelete("a", "")
}

// requirements.md#T7
func TestTheStage1PausesIfItDeclaresSo(t *testing.T) {
	w := newWorld(t)
	w.stage1.has[abi.AppPause] = true
	w.stage1.has[abi.AppResume] = true
	script, length := ticking(t)
	w.mustCreate("a", script)
	w.mustStart("a", "")
	w.stage1.on(abi.AppPause, fails(errors.New("deliberate")))
	if err := w.Pause(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "deliberate") {
		t.Errorf("pause: %v", err)
	}
	if !w.stage1.called(abi.AppResume) {
		t.Error("a pause that failed half-way was not undone")
	}
	w.mustBe("a", "", Running)
	w.stage1.on(abi.AppPause)
	if err := w.Pause(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.mustBe("a", "", Paused)
	before := length()
	wait.Until(t, "the cgroup is left alone", func() bool { return length() > before })
	if err := w.Resume(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.end("a")
}

// requirements.md#T7
func TestAClientThatGoesAwayLeavesNoHalfPausedApp(t *testing.T) {
	needFreezer(t)
	w := newWorld(t)
	script, length := ticking(t)
	w.mustCreate("a", script)
	w.mustStart("a", "")
	w.mustAddExec("a", "slow", "exec sleep 60")
	hold := make(chan struct{})
	w.stage1.on(abi.Enter, waitsFor(hold))
	var wg sync.WaitGroup
	wg.Go(func() { w.mustStart("a", "slow") })
	wait.Until(t, "the exec is being started", func() bool { return w.stage1.called(abi.Enter) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := w.Pause(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("pause: %v", err)
	}
	w.mustBe("a", "", Running)
	paused := make(chan error, 1)
	go func() { paused <- w.Pause(t.Context(), "a") }()
	wait.Until(t, "it is pausing", func() bool { st, _ := w.Status("a", ""); return st.State == Pausing })
	before := length()
	wait.Until(t, "it runs on until the exec has started", func() bool { return length() > before })
	close(hold)
	wg.Wait()
	if err := <-paused; err != nil {
		t.Error(err)
	}
	w.mustBe("a", "slow", Paused)
	w.end("a")
}

// While many execs are started, the app is paused and resumed. A paused app never runs,
// and every exec that was started has run.
// requirements.md#T7
func TestPauseInAnExecStorm(t *testing.T) {
	needFreezer(t)
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("e%d-%d", worker, i)
				w.stage1.script("a/"+id, "exit 0")
				err := w.AddExec(t.Context(), "a", ExecConfig{ID: ExecID(id), Process: readProcess(t, `{"args":["sh"],"cwd":"/"}`), Stdio: &noStdio{}})
				if err == nil {
					_, err = w.Start(t.Context(), "a", ExecID(id))
				}
				if err != nil && !errdefs.IsFailedPrecondition(err) {
					t.Errorf("exec: %v", err)
					return
				}
				if err == nil {
					_, _ = w.Wait(t.Context(), "a", ExecID(id))
				}
				_, _ = w.Delete(t.Context(), "a", ExecID(id))
			}
		})
	}
	for range 20 {
		if err := w.Pause(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wait.Still(t, "the processes of what is paused", func() string {
			pids, err := w.Pids(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			return fmt.Sprint(pids)
		})
		events := len(w.events.words())
		if err := w.Resume(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		wait.Until(t, "the storm goes on", func() bool { return len(w.events.words()) > events+4 })
	}
	close(stop)
	wg.Wait()
	w.end("a")
}

// requirements.md#T9
func TestKillAllInAnExecStormLeavesNobody(t *testing.T) {
	for _, sharedPIDs := range []bool{false, true} {
		w := newWorld(t)
		w.sharedPIDs = sharedPIDs
		w.mustCreate("a", "exec sleep 60")
		w.mustStart("a", "")
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					id := fmt.Sprintf("e%d-%d", worker, i)
					w.stage1.script("a/"+id, "exec sleep 60")
					err := w.AddExec(t.Context(), "a", ExecConfig{ID: ExecID(id), Process: readProcess(t, `{"args":["sh"],"cwd":"/"}`), Stdio: &noStdio{}})
					if err == nil {
						_, err = w.Start(t.Context(), "a", ExecID(id))
					}
					if errdefs.IsFailedPrecondition(err) {
						return // the app has ended
					}
				}
			})
		}
		wait.Until(t, "the storm is there", func() bool { return len(w.events.words()) > 20 })
		if err := w.Kill(t.Context(), "a", "", killSignal, true); err != nil {
			t.Fatal(err)
		}
		w.mustWait("a", "")
		a, err := w.app("a")
		if err != nil {
			t.Fatal(err)
		}
		if pids, err := a.cgroup.Pids(); err != nil || len(pids) > 0 {
			t.Errorf("shared PIDs %v: the exit was published, and %v live, %v", sharedPIDs, pids, err)
		}
		wg.Wait()
		w.mustDelete("a", "")
		words := w.events.words()
		end := slices.Index(words, "exited a")
		for i, word := range words {
			if strings.HasPrefix(word, "exited a/") && i > end {
				t.Errorf("%s follows the exit of its app (requirements.md#E1)", word)
			}
		}
		for _, word := range words[end:] {
			if strings.HasPrefix(word, "exec-started") {
				t.Errorf("%s follows the exit of its app", word)
			}
		}
	}
}

// freezeFromOutside freezes an app without a call to its pod.
func (w *world) freezeFromOutside(id AppID) {
	w.t.Helper()
	a, err := w.app(id)
	if err == nil {
		err = a.cgroup.Freeze(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// requirements.md#T9
func TestSIGKILLEndsAnAppThatAnotherProgramHasFrozen(t *testing.T) {
	needFreezer(t)
	for _, all := range []bool{false, true} {
		// Only one world at a time, because each reaps all processes that it takes for
		// orphans.
		t.Run(fmt.Sprintf("all %v", all), func(t *testing.T) {
			w := newWorld(t)
			w.mustCreate("a", "exec sleep 60")
			w.mustStart("a", "")
			w.freezeFromOutside("a")
			if err := w.Kill(t.Context(), "a", "", killSignal, all); err != nil {
				t.Error(err)
			}
			if e := w.mustWait("a", ""); e.Code != 137 {
				t.Errorf("%+v", e)
			}
			w.mustDelete("a", "")
		})
	}
}

// Otherwise the exec would hang as soon as it has entered the cgroup. On a host with both versions of cgroups, a
// container can freeze its cgroup of version 2 itself.
// requirements.md#T4
func TestAnExecInAnAppThatAnotherProgramHasFrozenFailsAtOnce(t *testing.T) {
	needFreezer(t)
	for _, byItself := range []bool{false, true} {
		w := newWorld(t)
		w.mustCreate("a", "exec sleep 60")
		w.mustStart("a", "")
		w.mustAddExec("a", "e", "exit 0")
		a, err := w.app("a")
		if err != nil {
			t.Fatal(err)
		}
		thaw := a.cgroup.Thaw
		if unified := a.cgroup.ABI().Unified; !byItself {
			w.freezeFromOutside("a")
		} else if unified != "" {
			freeze := func(text string) error { return os.WriteFile(filepath.Join(unified, "cgroup.freeze"), []byte(text), 0) }
			if err := freeze("1"); err != nil {
				t.Fatal(err)
			}
			thaw = func() error { return freeze("0") }
		} else {
			w.end("a")
			continue
		}
		_, err = w.Start(t.Context(), "a", "e")
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "another program has frozen cgroup /") {
			t.Errorf("start of an exec: %v", err)
		}
		if w.stage1.called(abi.Enter) {
			t.Error("the stage1 was asked for it")
		}
		if err := thaw(); err != nil {
			t.Fatal(err)
		}
		w.mustDelete("a", "e")
		w.mustAddExec("a", "f", "exit 0")
		w.mustStart("a", "f")
		w.mustWait("a", "f")
		w.end("a")
		if err := w.Close(w.soon()); err != nil { // another world would reap its processes
			t.Fatal(err)
		}
	}
}
