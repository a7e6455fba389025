package pod

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestAnExecInAnAppAtItsLimitOfProcessesIsRefusedAndLeavesNothing(t *testing.T) {
	needPids(t)
	w := newWorld(t)
	w.resources = `,"resources":{"pids":{"limit":3}}`
	path, next := scriptLines(t)
	w.mustCreate("a", "sleep 60 & sleep 60 & echo full > "+path+"; wait")
	w.mustStart("a", "")
	next()
	before, err := w.Pids(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []string{"e", "f"} {
		w.mustAddExec("a", e, "exit 6")
		_, err := w.Start(t.Context(), "a", ExecID(e))
		if !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "limit of 3 processes: resource temporarily unavailable") {
			t.Errorf("start: %v", err)
		}
		w.mustBe("a", e, Created)
		w.mustDelete("a", e)
	}
	if after, err := w.Pids(t.Context(), "a"); err != nil || len(after) != len(before) {
		t.Errorf("%v became %v, %v", before, after, err)
	}
	w.end("a")
}
