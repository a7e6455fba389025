package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/internal/wait"
	"github.com/rkt/containerd-shim-rkt-v1/proc"
)

// requirements.md#E1, requirements.md#T1 to requirements.md#T3
func TestAnAppRunsFromCreateToDeleteWithItsEventsInOrder(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 42")
	if st, err := w.Status("a", ""); err != nil || st.State != Created || st.PID == 0 {
		t.Fatalf("status after create: %+v, %v", st, err)
	}
	w.mustStart("a", "")
	if e := w.mustWait("a", ""); e.Code != 42 || e.At.IsZero() {
		t.Errorf("exit %+v, want 42 with a time", e)
	}
	if st := w.mustDelete("a", ""); st.Exit.Code != 42 {
		t.Errorf("delete answered %+v, want exit 42", st)
	}
	want := []string{"created a", "started a", "exited a", "deleted a"}
	if got := w.events.words(); !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if _, err := w.Delete(t.Context(), "a", ""); !errdefs.IsNotFound(err) {
		t.Errorf("second delete: %v, want NotFound", err)
	}
}

// requirements.md#G6
func TestThePodEndsWithItsLastAppAndBeginsAnew(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 0")
	w.mustCreate("b", "exit 0")
	if dirs := w.podDirs("run"); len(dirs) != 1 {
		t.Fatalf("two apps of one pod live in %v, want one directory", dirs)
	}
	w.mustDelete("a", "")
	if dirs := w.podDirs("run"); len(dirs) != 1 {
		t.Errorf("the pod ended with its first app: %v", dirs)
	}
	w.mustDelete("b", "")
	w.mustCreate("c", "exit 0") // begins when the old pod has ended
	w.mustDelete("c", "")
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"embryo", "prepare", "run", "exited-garbage"} {
		if dirs := w.podDirs(state); len(dirs) != 0 {
			t.Errorf("%s still holds %v", state, dirs)
		}
	}
}

func TestAnIdCanBeUsedAgainRightAfterItsDeletion(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		w.mustCreate("a", "exit 0")
		w.mustDelete("a", "")
	}
}

// requirements.md#X2
func TestAnExitBeforeStartReturnsIsPublishedAfterTheStart(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	for i := range 20 {
		id := fmt.Sprintf("e%d", i)
		w.mustAddExec("a", id, "exit 3")
		w.mustStart("a", id)
		if e := w.mustWait("a", id); e.Code != 3 {
			t.Fatalf("exec %s: %+v", id, e)
		}
		w.mustDelete("a", id)
	}
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), false); err != nil {
		t.Fatal(err)
	}
	w.mustWait("a", "")
	w.mustDelete("a", "")
	got := w.events.words()
	for i := range 20 {
		id := fmt.Sprintf("a/e%d", i)
		added, started, exited := slices.Index(got, "exec-added "+id), slices.Index(got, "exec-started "+id), slices.Index(got, "exited "+id)
		if added < 0 || started < added || exited < started {
			t.Errorf("exec %s: added %d, started %d, exited %d in %v", id, added, started, exited, got)
		}
	}
}

// requirements.md#E1
func TestTheExitOfAnAppFollowsThoseOfItsExecs(t *testing.T) {
	w := newWorld(t)
	path, next := scriptLines(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	w.mustAddExec("a", "slow", "echo up > "+path+"; sleep 0.5; exit 9")
	w.mustStart("a", "slow")
	next()
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), false); err != nil {
		t.Fatal(err)
	}
	if e := w.mustWait("a", ""); e.Code != 137 {
		t.Errorf("exit %+v, want 137", e)
	}
	got := w.events.words()
	if slices.Index(got, "exited a/slow") > slices.Index(got, "exited a") || !slices.Contains(got, "exited a/slow") {
		t.Errorf("events %v: the exec's exit has to come first", got)
	}
	w.mustDelete("a", "slow")
	w.mustDelete("a", "")
}

// requirements.md#T2
func TestNoExecStartsOnceTheAppHasEnded(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 0")
	w.mustAddExec("a", "late", "exit 0")
	w.mustStart("a", "")
	w.mustWait("a", "")
	if _, err := w.Start(t.Context(), "a", "late"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("start of an exec in an ended app: %v, want FailedPrecondition", err)
	}
	w.mustDelete("a", "")
}

func TestWhatIsNoSpecIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		``: "unexpected end of JSON input", `{`: "unexpected end of JSON input", `[]`: "json: cannot unmarshal array",
		`{"process":{"cwd":7}}`: "json: cannot unmarshal number into Go struct field Process.process.cwd of type string",
	} {
		s, err := ReadSpec("a", "/b", []byte(text))
		if s != nil || !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "container a: /b/config.json is not an OCI runtime spec: "+want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	const none = `exec "e" in container a: the id is empty or the spec is not an OCI process: invalid argument`
	for text, want := range map[string]string{
		``: none, `null`: none, `7`: none, `[]`: none, `{"args":["sh"]`: none, `{"args":["sh"]}{}`: none,
		`{"terminal":"yes"}`: "exec e in container a: not an OCI process: json: cannot unmarshal string into Go struct field Process.terminal of type bool: invalid argument",
	} {
		if p, err := ReadProcess("a", "e", []byte(text)); p != nil || !errdefs.IsInvalidArgument(err) || err.Error() != want {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if p, err := ReadProcess("a", "", []byte(`{"args":["sh"]}`)); p != nil || !errdefs.IsInvalidArgument(err) {
		t.Errorf("without an id: %v", err)
	}
}

// To set this number as an id leaves the id of root.
func TestAnIDThatNamesNobodyIsRefused(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	for _, user := range []string{`"uid":4294967295`, `"gid":4294967295`, `"additionalGids":[1,4294967295]`} {
		process := `{"args":["sh"],"cwd":"/","user":{` + user + `}}`
		s, err := ReadSpec("b", "/b", []byte(`{"ociVersion":"1.2.0","root":{"path":"/r"},"process":`+process+`}`))
		if err != nil {
			t.Fatal(err)
		}
		const want = "process.user: 4294967295 is the id of no user and no group"
		if err := CheckApp("b", "/b", s); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", user, err)
		}
		err = w.AddExec(t.Context(), "a", ExecConfig{ID: "e", Process: readProcess(t, process), Stdio: &noStdio{}})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("exec, %s: %v", user, err)
		}
	}
	w.mustKillAndDelete("a")
}

func TestASizeThatNoTerminalHasIsRefused(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	const process = `{"args":["sh"],"cwd":"/","consoleSize":{"height":25,"width":65537}}`
	const want = "process.consoleSize: a terminal has at most 65535 columns and lines, and not 65537 x 25"
	s, err := ReadSpec("b", "/b", []byte(`{"ociVersion":"1.2.0","root":{"path":"/r"},"process":`+process+`}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckApp("b", "/b", s); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("app: %v", err)
	}
	err = w.AddExec(t.Context(), "a", ExecConfig{ID: "e", Process: readProcess(t, process), Stdio: &noStdio{}})
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("exec: %v", err)
	}
	w.mustKillAndDelete("a")
}

// A spec is large and an app may run for a long time, so the spec must not stay in memory.
func TestWhatWasReadOfASpecIsNotKept(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustAddExec("a", "e", "exit 0")
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	e, err := a.exec("e")
	if err != nil {
		t.Fatal(err)
	}
	w.mustStart("a", "")
	w.mustStart("a", "e")
	w.mustWait("a", "e")
	if a.config.Spec != nil || e.config.Process != nil {
		t.Errorf("the app has %p, the exec %p", a.config.Spec, e.config.Process)
	}
	w.end("a")
}

func TestAnExecAsksForNothingThatItsStage1DoesNotHonour(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 0")
	w.stage1.on(features, fails(errors.New("deliberate")))
	config := ExecConfig{ID: "e", Process: readProcess(t, `{"args":["sh"],"cwd":"/","ioPriority":{"class":"IOPRIO_CLASS_IDLE"}}`), Stdio: &noStdio{}}
	if err := w.AddExec(t.Context(), "a", config); err == nil || !strings.Contains(err.Error(), "deliberate") {
		t.Errorf("exec: %v", err)
	}
	checked := w.stage1.callsOf(features)
	if got, want := string(checked[len(checked)-1].Process), string(config.Process.Text); got != want {
		t.Errorf("what was checked is %s, want %s", got, want)
	}
	if _, err := w.Status("a", "e"); !errdefs.IsNotFound(err) {
		t.Errorf("the refused exec: %v", err)
	}
	w.mustDelete("a", "")
}

// requirements.md#T2
func TestAFailedExecStaysCreatedAndReleasesItsWaiters(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	w.mustStart("a", "")
	w.mustAddExec("a", "bad", "")
	w.stage1.on(abi.Enter, fails(errors.New(`exec: "nope": executable file not found in $PATH`)))
	_, err := w.Start(t.Context(), "a", "bad")
	if err == nil || !strings.Contains(err.Error(), "executable file not found in $PATH") {
		t.Fatalf("start: %v", err)
	}
	if st, _ := w.Status("a", "bad"); st.State != Created {
		t.Errorf("state %s, want created", st.State)
	}
	if e := w.mustWait("a", "bad"); e.Code != 0 || !e.At.IsZero() {
		t.Errorf("wait answered %+v, want nothing", e)
	}
	w.stage1.on(abi.Enter)
	if _, err := w.Start(t.Context(), "a", "bad"); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "again") {
		t.Errorf("start again: %v", err)
	}
	w.mustDelete("a", "bad")
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), true); err != nil {
		t.Fatal(err)
	}
	w.mustWait("a", "")
	w.mustDelete("a", "")
}

// If the start of an app fails, its process must be killed: no client can signal it any more,
// and Delete would wait for the end of its output.
// requirements.md#T2
func TestAnAppThatCannotBeStartedIsKilled(t *testing.T) {
	for _, recorder := range []Recorder{RecordedByStage1, RecordedByStage0} {
		t.Run(recorder.String(), func(t *testing.T) {
			w := newWorld(t)
			w.stage1.orphans = recorder == RecordedByStage0
			w.mustCreate("a", "exec sleep 60")
			w.stage1.on(abi.AppStart, fails(errors.New("deliberate")))
			st, err := w.Status("a", "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Start(t.Context(), "a", ""); err == nil || !strings.Contains(err.Error(), "deliberate") {
				t.Fatalf("start: %v", err)
			}
			if stat, err := proc.ReadStat(st.PID); err == nil && stat.State != 'Z' {
				t.Errorf("its process %d lives: %+v", st.PID, stat)
			}
			if e := w.mustWait("a", ""); e.Code != 128 {
				t.Errorf("wait answered %+v", e)
			}
			w.mustDelete("a", "")
			if got, want := w.events.words(), []string{"created a", "deleted a"}; !slices.Equal(got, want) {
				t.Errorf("events %q, want %q", got, want)
			}
		})
	}
}

// In an app that is not started no program handles signals, and as process 1 it ignores most
// of them. It is killed, and its exit is reported as if the signal had ended it.
// requirements.md#T9
func TestACreatedAppDiesOfTheSignalThatItWasSent(t *testing.T) {
	for name, prepare := range map[string]func(*fakeStage1){
		"by the stage1": func(*fakeStage1) {},
		"by stage 0":    func(f *fakeStage1) { f.orphans, f.has[abi.AppSignal] = true, false },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			prepare(w.stage1)
			for id, c := range map[string]struct {
				signals []syscall.Signal
				code    uint32
			}{
				"term":    {[]syscall.Signal{syscall.SIGTERM}, 143},
				"kill":    {[]syscall.Signal{syscall.SIGKILL}, 137},
				"twice":   {[]syscall.Signal{syscall.SIGINT, syscall.SIGKILL}, 130},
				"ignored": {[]syscall.Signal{syscall.SIGWINCH, syscall.SIGKILL}, 137},
			} {
				w.mustCreate(id, "exit 0")
				for _, sig := range c.signals {
					if err := w.Kill(t.Context(), AppID(id), "", int(sig), false); err != nil && !errdefs.IsNotFound(err) {
						t.Errorf("%s: signal %d: %v", id, sig, err)
					}
				}
				if e := w.mustWait(id, ""); e.Code != c.code {
					t.Errorf("%s ended with %d, want %d", id, e.Code, c.code)
				}
				w.mustDelete(id, "")
			}
		})
	}
}

// If a signal was not delivered, it is not the cause of the process's end.
func TestASignalThatIsNotDeliveredIsNoCause(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 0")
	w.stage1.on(abi.AppSignal, fails(errors.New("deliberate")))
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGTERM), false); err == nil {
		t.Error("kill succeeds")
	}
	w.stage1.on(abi.AppSignal)
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), false); err != nil {
		t.Error(err)
	}
	if e := w.mustWait("a", ""); e.Code != 137 {
		t.Errorf("it ended with %d", e.Code)
	}
	w.mustDelete("a", "")
}

// requirements.md#T1
func TestAFailedCreateLeavesNothing(t *testing.T) {
	for _, e := range []abi.Entrypoint{abi.Run, abi.AppAdd, features} {
		t.Run(string(e), func(t *testing.T) {
			w := newWorld(t)
			w.stage1.on(e, fails(errors.New("deliberate")))
			if _, err := w.create("a", "exit 0"); err == nil || !strings.Contains(err.Error(), "deliberate") {
				t.Fatalf("create: %v", err)
			}
			if got := w.events.words(); len(got) != 0 {
				t.Errorf("events of a failed create: %v", got)
			}
			if !w.Empty("") {
				t.Error("the app is still registered")
			}
			for _, state := range []string{"embryo", "prepare", "run", "exited-garbage"} {
				if dirs := w.podDirs(state); len(dirs) != 0 {
					t.Errorf("%s holds %v", state, dirs)
				}
			}
			w.stage1.on(e)
			w.mustCreate("a", "exit 0") // the same id right after
			w.mustDelete("a", "")
		})
	}
}

func TestTheDeathOfTheSupervisorEndsItsApps(t *testing.T) {
	for name, orphans := range map[string]bool{"whose exits it recorded": false, "whose exits stage 0 records": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.stage1.orphans = orphans
			w.mustCreate("created", "exit 0")
			w.mustCreate("running", "sleep 60 & wait")
			w.mustStart("running", "")
			w.mustAddExec("running", "e", "exec sleep 60")
			w.mustStart("running", "e")
			begin := time.Now()
			w.stage1.die()
			for _, p := range [][2]string{{"created", ""}, {"running", "e"}, {"running", ""}} {
				if e := w.mustWait(p[0], p[1]); e.Code != 137 {
					t.Errorf("%s: exit %+v, want 137", p, e)
				}
			}
			if d := time.Since(begin); d > 5*time.Second*wait.Busyness() {
				t.Errorf("it took %s", d)
			}
			for _, id := range []string{"created", "running"} {
				w.mustDelete(id, "")
			}
		})
	}
}

// hasty makes a process's exit known while its start is being published.
type hasty struct {
	recorder
	process *process
	known   sync.WaitGroup
}

func (h *hasty) Publish(e Event) {
	if e.Kind == EventStarted {
		h.known.Go(func() { h.process.exited(Exit{Code: 7}) })
		time.Sleep(time.Millisecond) // as a rule it is handed in by now
	}
	h.recorder.Publish(e)
}

// mustPush passes events of a process to its outbox, as if the process was created, started
// and so on.
func mustPush(t *testing.T, p *process, kinds ...EventKind) {
	t.Helper()
	for _, k := range kinds {
		if k == EventStarted {
			if err := p.beginStart(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.push(Event{Kind: k}); err != nil {
			t.Fatal(err)
		}
	}
}

// requirements.md#X2
func TestAnExitDuringThePublishingOfTheStartWaitsForIt(t *testing.T) {
	h := &hasty{}
	h.process = newProcess("a", "", &noStdio{}, false, h, new(outbox))
	mustPush(t, h.process, EventCreated, EventStarted)
	h.known.Wait()
	if got, want := h.words(), []string{"created a", "started a", "exited a"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if e, err := h.process.wait(t.Context()); err != nil || e.Code != 7 {
		t.Errorf("exit %+v, %v", e, err)
	}
}

func TestCallsInTheWrongStateAreRefusedAndChangeNothing(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exec sleep 60")
	if _, err := w.create("a", ""); !errdefs.IsAlreadyExists(err) {
		t.Errorf("second create: %v", err)
	}
	w.mustAddExec("a", "e", "exit 0")
	if err := w.Kill(t.Context(), "a", "e", 9, false); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("kill of an exec that was not started: %v", err)
	}
	w.mustStart("a", "")
	if _, err := w.Start(t.Context(), "a", ""); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "cannot start a running process") {
		t.Errorf("second start: %v", err)
	}
	if _, err := w.Delete(t.Context(), "a", ""); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("delete of a running app: %v", err)
	}
	if err := w.Kill(t.Context(), "a", "", 65, false); !errdefs.IsInvalidArgument(err) {
		t.Errorf("signal 65: %v", err)
	}
	if st, err := w.Status("a", ""); err != nil || st.State != Running {
		t.Errorf("status %+v, %v", st, err)
	}
	if err := w.Kill(t.Context(), "a", "", 9, false); err != nil {
		t.Error(err)
	}
	w.mustWait("a", "")
	if err := w.Kill(t.Context(), "a", "", 9, false); !errdefs.IsNotFound(err) {
		t.Errorf("kill of an ended app: %v", err)
	}
	if _, err := w.Pids(t.Context(), "a"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("pids of an ended app: %v, want anything but NotFound (requirements.md#R3)", err)
	}
	w.mustDelete("a", "")
	for _, err := range []error{
		errOf(w.Status("a", "")), errOf(w.Wait(t.Context(), "a", "")), errOf(w.Start(t.Context(), "a", "")),
		w.Kill(t.Context(), "a", "", 9, false), w.Resize("a", "", Size{}), w.CloseStdin("a", ""), errOf(w.Pids(t.Context(), "a")),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("call on an unknown app: %v, want NotFound", err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

// requirements.md#T6
func TestPidsListsTheAppsProcessesAndNamesItsExecs(t *testing.T) {
	w := newWorld(t)
	path, next := scriptLines(t)
	w.mustCreate("a", "sleep 60 & echo up > "+path+"; wait")
	w.mustStart("a", "")
	w.mustAddExec("a", "e", "echo up > "+path+"; exec sleep 60")
	w.mustStart("a", "e")
	next()
	next()
	infos, err := w.Pids(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	st, _ := w.Status("a", "")
	e, _ := w.Status("a", "e")
	if len(infos) != 3 || !slices.Contains(infos, ProcessInfo{PID: st.PID}) || !slices.Contains(infos, ProcessInfo{PID: e.PID, Exec: "e"}) {
		t.Errorf("processes %+v, want the first (%d), its child and exec e (%d)", infos, st.PID, e.PID)
	}
	if err := w.Kill(t.Context(), "a", "", 9, true); err != nil {
		t.Error(err)
	}
	w.mustWait("a", "e")
	w.mustWait("a", "")
	w.mustDelete("a", "")
}

// If the client for which the stage1 was started has gone, and no other client needs the
// stage1, its start is cancelled.
// requirements.md#R4
func TestAStartOfTheStage1ThatHangsEndsWithItsLastClient(t *testing.T) {
	w := newWorld(t)
	w.stage1.on(abi.Run, hangs)
	ctx, cancel := context.WithCancel(t.Context())
	w.client = ctx
	failed := make(chan error, 1)
	go func() {
		_, err := w.create("x", "exit 0")
		failed <- err
	}()
	wait.Until(t, "run is called", func() bool { return w.stage1.called(abi.Run) })
	cancel()
	if err := wait.For(t, "the return of create", failed); !errors.Is(err, context.Canceled) {
		t.Errorf("create: %v", err)
	}
	if left := w.podDirs("run"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A client that asks while a failed creation is being undone, as a containerd that has
// just been started does, is not told of a container that has ended.
// requirements.md#T1, requirements.md#R4
func TestAnAppWhoseCreationFailedIsNeverSeen(t *testing.T) {
	w := newWorld(t)
	hold := make(chan struct{})
	w.stage1.on(abi.AppAdd, fails(errdefs.ErrInvalidArgument))
	w.stage1.on(abi.Stop, waitsFor(hold))
	failed := make(chan error, 1)
	go func() {
		_, err := w.create("x", "exit 0")
		failed <- err
	}()
	wait.Until(t, "stop is called", func() bool { return w.stage1.called(abi.Stop) })
	if st, err := w.Status("x", ""); !errdefs.IsNotFound(err) {
		t.Errorf("status %v, %v", st, err)
	}
	if _, err := w.Delete(t.Context(), "x", ""); !errdefs.IsNotFound(err) {
		t.Errorf("delete: %v", err)
	}
	close(hold)
	if err := <-failed; !errdefs.IsInvalidArgument(err) {
		t.Errorf("create: %v", err)
	}
}
