package pod

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// statusFiles lists the records of a pod, those of execs as APP.exec/EXEC.
func (w *world) statusFiles() []string {
	w.t.Helper()
	dirs := w.podDirs("run")
	if len(dirs) != 1 {
		w.t.Fatalf("pods %v, want one", dirs)
	}
	dir := filepath.Join(w.data, "pods/run", dirs[0], abi.StatusDir)
	var names []string
	for _, pattern := range []string{"[^.]*", "*.exec/*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range files {
			if st, err := os.Stat(f); err == nil && !st.IsDir() {
				names = append(names, strings.TrimPrefix(f, dir+"/"))
			}
		}
	}
	return names
}

// appName returns the app's name, as the stage1 knows it.
func (w *world) appName(id string) string {
	w.t.Helper()
	a, err := w.app(AppID(id))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(a.name)
}

// If a notice has the exit code, no record is needed, and no space on the disk for one.
func TestTheCodeOfANoticeNeedsNoRecord(t *testing.T) {
	w := newWorld(t)
	w.stage1.worded = true
	over := filepath.Join(t.TempDir(), "over")
	w.mustCreate("a", "until [ -e "+over+" ]; do sleep 0.02; done; exit 42")
	if !w.stage1.callsOf(abi.Run)[0].NoticeWords {
		t.Error("run was not told that notices may say how a process ended")
	}
	w.mustStart("a", "")
	w.mustExec("a", "probe", 7)
	if st := w.mustDelete("a", "probe"); st.Exit.Code != 7 {
		t.Errorf("its deletion says %+v", st.Exit)
	}
	if err := os.WriteFile(over, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if e := w.mustWait("a", ""); e.Code != 42 {
		t.Errorf("the app's exit is %+v, want 42", e)
	}
	if left := w.statusFiles(); len(left) > 0 {
		t.Errorf("there are records %v", left)
	}
	w.mustDelete("a", "")
}

// A stage1 may be broken, or hostile. Its notices move what they name and nothing else.
func TestNoticesThatMakeNoSense(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "sleep 60")
	w.mustAddExec("a", "created", "exit 1")
	w.mustRun("b", "exec sleep 60")
	name := w.appName("a")
	w.stage1.tell(
		"", "exit", "exit code=3", "hello "+name, "exit nobody", "exit nobody code=3", "exit "+name+" nobody code=3",
		"exit "+name+" one two", "exit "+name+" code=3 two", "exit ../"+name+" code=3", strings.Repeat("x", 4000),
	)
	// Notices are handled in order, so all notices above were handled when b has ended.
	w.stage1.tell("exit " + w.appName("b") + " code=300 time=never")
	if e := w.mustWait("b", ""); e.Code != 137 {
		t.Errorf("an exit without a code and a record is %+v, want 137", e)
	}
	if st, err := w.Status("a", ""); err != nil || st.State != Running {
		t.Errorf("the app is %+v, %v, want running", st, err)
	}
	if st, err := w.Status("a", "created"); err != nil || st.State != Created {
		t.Errorf("the exec is %+v, %v, want created", st, err)
	}
	// If there are several notices of one exit, the first one counts.
	w.stage1.tell("exit "+name+" code=4 time=5.25", "exit "+name+" code=6", "exit "+name)
	if e := w.mustWait("a", ""); e.Code != 4 || !e.At.Equal(time.Unix(5, 250000000)) {
		t.Errorf("exit %+v, want 4 at 5.25", e)
	}
	w.mustDelete("a", "")
	w.mustDelete("b", "")
}

// A stage1 of an older release records the exit of every exec. The record is removed with
// the exec, and not only with the container.
func TestTheRecordOfAnExecGoesWithIt(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "sleep 60 & wait")
	for range 3 {
		w.mustExec("a", "probe", 7)
		if got := w.statusFiles(); len(got) != 1 {
			t.Errorf("the stage1 has recorded %v, want one exec", got)
		}
		w.mustDelete("a", "probe")
		if left := w.statusFiles(); len(left) > 0 {
			t.Errorf("left are the records %v", left)
		}
	}
	w.stage1.die()
	w.mustWait("a", "")
	w.mustDelete("a", "")
}

// If the stage1 dies, an exec does not get the recorded exit of an earlier exec with the
// same id.
func TestAnExecIsNotToldTheExitOfItsPredecessor(t *testing.T) {
	w := newWorld(t)
	w.mustRun("a", "sleep 60 & wait")
	w.mustExec("a", "x", 7)
	w.mustDelete("a", "x")
	w.mustAddExec("a", "x", "exec sleep 60")
	// Write a record as if the stage1 had written it after the deletion.
	a, _ := w.app("a")
	if err := abi.WriteStatus(a.session.statusDir(), string(a.name), "x", abi.Status{Code: 7, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	w.mustStart("a", "x")
	w.stage1.die()
	if e := w.mustWait("a", "x"); e.Code != 137 {
		t.Errorf("exit %+v, want 137", e)
	}
	w.mustWait("a", "")
	w.mustDelete("a", "")
}

// The record of an app can be written on a full disk, because its space was reserved
// before.
func TestTheRecordOfAnAppHasRoomOfItsOwn(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 42")
	a, _ := w.app("a")
	spare := filepath.Join(a.session.statusDir(), "."+string(a.name)+".spare")
	room, err := os.Stat(spare)
	if err != nil {
		t.Fatal(err)
	}
	w.mustStart("a", "")
	w.mustWait("a", "")
	record, err := os.Stat(abi.StatusPath(a.session.statusDir(), string(a.name), ""))
	if err != nil || !os.SameFile(room, record) {
		t.Errorf("the record is another file than the reserved one (%v)", err)
	}
	w.mustCreate("b", "exit 0")
	b, _ := w.app("b")
	w.mustDelete("a", "")
	dir := b.session.statusDir()
	w.stage1.worded = true // so that the room stays unused
	w.mustStart("b", "")
	w.mustWait("b", "")
	if err := b.disk.RemoveFiles(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("left are %v, %v", files, err)
	}
	w.mustDelete("b", "")
}

func TestAnExecHasTheNameOfAFile(t *testing.T) {
	w := newWorld(t)
	w.mustCreate("a", "exit 0")
	for _, id := range []string{"..", ".", "a/b", "../a", "a b", "a=b", "a\nexit b", strings.Repeat("a", 256)} {
		err := w.AddExec(t.Context(), "a", ExecConfig{ID: ExecID(id), Process: readProcess(t, `{"args":["sh"],"cwd":"/"}`), Stdio: &noStdio{}})
		if !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("exec %q: %v, want an invalid argument", id, err)
		}
	}
	w.mustAddExec("a", "A.b-c_9", "exit 0")
	w.mustDelete("a", "")
}
