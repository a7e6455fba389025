package conformance_test

import (
	"strings"
	"testing"
)

func TestCheckpointsOfOCIWhereCriuWorks(t *testing.T) {
	t.Parallel()
	v := verifyJSON(t, "--run", "checkpoint/", bundledImage(t, "oci"))
	if len(v.Checks) != 3 || v.code != 0 {
		t.Errorf("code %d: %+v", v.code, v.Checks)
	}
	for _, c := range v.Checks {
		if c.Outcome == "absent" {
			t.Skip(c.Words) // the text names the missing part
		}
		if c.Outcome != "passed" {
			t.Errorf("%s: %s", c.ID, c.Words)
		}
	}
}

// If a stage1 cannot do something on this machine, it does not reach a level that demands
// it, but the check does not fail.
func TestWhatAStage1SaysThatItCannotIsSkippedByName(t *testing.T) {
	t.Parallel()
	dir := checkpoints(`fail "the moon is not full" 7`).image(t)
	v := verifyJSON(t, "--run", "checkpoint/", dir)
	if v.code != 0 || len(v.Checks) != 3 {
		t.Fatalf("code %d: %+v", v.code, v.Checks)
	}
	for _, c := range v.Checks {
		if c.Outcome != "absent" || !strings.Contains(c.Words, "it says that it cannot") || !strings.Contains(c.Words, "the moon is not full") {
			t.Errorf("%+v", c)
		}
	}
	if v := verify(t, "--run", "checkpoint/", dir); !strings.Contains(v.stdout, "# SKIP refused: it says that it cannot: ") {
		t.Errorf("as TAP: %s", v.stdout)
	}
}
