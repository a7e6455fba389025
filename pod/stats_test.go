package pod

import (
	"testing"

	"github.com/containerd/errdefs"
)

// requirements.md#T14
func TestStatsFromCreateToDelete(t *testing.T) {
	w := newLimitedWorld(t)
	w.mustCreate("a", "exec "+greedy)
	st, err := w.Stats(t.Context(), "a")
	if err != nil || st.Pids.Current == 0 {
		t.Errorf("created: %+v, %v", st, err)
	}
	w.mustStart("a", "")
	w.mustWait("a", "")
	// What CRI asks for when an app has ended.
	if st, err := w.Stats(t.Context(), "a"); err != nil || st.OOM["oom_kill"] == 0 {
		t.Errorf("stopped: %+v, %v", st, err)
	}
	w.mustDelete("a", "")
	if _, err := w.Stats(t.Context(), "a"); !errdefs.IsNotFound(err) {
		t.Errorf("deleted: %v", err)
	}
}
