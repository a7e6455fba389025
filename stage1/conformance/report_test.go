package conformance

import (
	"strings"
	"testing"
)

// A check that fails at level 1 does not hide what the stage1 can do otherwise.
func TestTheSummaryHasTheLevelThatFailedChecksCost(t *testing.T) {
	result := func(id string, level Level, o Outcome, demanded bool) Result {
		return Result{Check: Check{ID: id, Level: level, demanded: demanded}, Outcome: o}
	}
	passed, option := result("run/ready", LevelRun, Passed, true), result("honours/devices", LevelRun, Failed, false)
	exec, checkpoint := result("enter/code", LevelExec, Passed, true), result("checkpoint/restore", LevelUser, Absent, true)
	for _, c := range []struct {
		results []Result
		claimed Level
		want    string
	}{
		{[]Result{passed, option, exec, checkpoint}, 0, "# level 3 but for 1: honours/devices\n"},
		{[]Result{passed, exec, checkpoint}, 0, ""},
		{[]Result{passed, option, exec}, LevelExec, "# level 2 but for 1: honours/devices\n"},
		{[]Result{passed, option, result("enter/code", LevelExec, Absent, true), checkpoint}, 0, "# level 1 but for 1: honours/devices\n"},
	} {
		r := Report{Results: c.results, Whole: true, Claimed: c.claimed}
		r.Judge()
		var text strings.Builder
		NewTAP(&text, len(c.results), 1).End(&r)
		if has := strings.Contains(text.String(), " but for "); !strings.Contains(text.String(), c.want) || has != (c.want != "") {
			t.Errorf("the summary should have %q:\n%s", c.want, text.String())
		}
	}
}
