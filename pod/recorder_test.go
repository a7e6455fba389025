package pod

import (
	"syscall"
	"testing"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// A process of the stage1 may become a child of stage 0, because its parent has ended.
func TestTheExitOfAProcessThatIsLeftToStage0LaterIsKnown(t *testing.T) {
	w := newWorld(t)
	w.stage1.orphans, w.stage1.disowns = true, true
	w.mustRun("a", "sleep 60 & wait")
	w.mustExec("a", "probe", 44)
	w.mustDelete("a", "probe")

	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), true); err != nil {
		t.Fatal(err)
	}
	if e := w.mustWait("a", ""); e.Code != 137 {
		t.Errorf("exit %+v, want 137", e)
	}
	if st, err := abi.ReadStatus(a.session.statusDir(), string(a.name), ""); err != nil || st.Code != 137 || st.Signal != 9 {
		t.Errorf("on record is %+v, %v", st, err)
	}
	w.mustDelete("a", "")
}

// The record of the stage1 may differ from the wait status of the host's process: it may be
// the exit of a process in a virtual machine.
func TestAnExitThatTheStage1HasRecordedCountsMoreThanTheWaitStatus(t *testing.T) {
	w := newWorld(t)
	w.stage1.orphans, w.stage1.disowns = true, true
	w.mustRun("a", "sleep 60 & wait")
	a, err := w.app("a")
	if err != nil {
		t.Fatal(err)
	}
	if err := abi.WriteStatus(a.session.statusDir(), string(a.name), "", abi.Status{Code: 42, Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if err := w.Kill(t.Context(), "a", "", int(syscall.SIGKILL), true); err != nil {
		t.Fatal(err)
	}
	if e := w.mustWait("a", ""); e.Code != 42 {
		t.Errorf("exit %+v, want the recorded 42", e)
	}
	w.mustDelete("a", "")
}
