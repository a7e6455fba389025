package spelling

import "testing"

func TestAWordIsLikelyMeantIfItDiffersInCaseOrInFewLetters(t *testing.T) {
	list := []string{"args", "cwd", "env", "process", "rlimits", "maskedPaths"}
	for word, want := range map[string]string{
		"Process": "process", "MASKEDPATHS": "maskedPaths", "rlimit": "rlimits", "procss": "process", "maskdPath": "maskedPaths",
		"arg": "args", "evn": "", "rlimist": "rlimits", "cwx": "cwd", "x": "", "en": "", "novel": "", "limits2": "rlimits", "": "",
	} {
		if got := Likely(word, list); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if got := Likely("args", nil); got != "" {
		t.Errorf("of no words %q", got)
	}
}

func TestTheNearestWordHasTheSmallestDistance(t *testing.T) {
	if got := Nearest("natvie", []string{"oci", "native", "nspawn"}); got != "native" || Distance("natvie", got) != 2 {
		t.Errorf("%q at %d", got, Distance("natvie", got))
	}
}
