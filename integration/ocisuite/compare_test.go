package main

import (
	"slices"
	"testing"
)

func TestResultsAreWhatTheListSays(t *testing.T) {
	list := []deviation{
		{program: "known", columns: []string{"native"}, checks: "limit .*"},
		{program: "varying", columns: []string{"native"}, varies: true},
		{program: "removed", columns: []string{"native"}},
	}
	good := report{"native", map[string]result{
		"known": {NotOK: []string{"limit of pids"}}, "varying": {OK: 1}, "other": {OK: 1}, "removed": {Ended: "exit status 1"},
	}}
	if problems := compare([]report{good}, list, true); problems != nil {
		t.Errorf("%q", problems)
	}
	bad := report{"native", map[string]result{
		"known": {NotOK: []string{"limit of pids", "name"}}, "varying": {Ended: "exit status 1"}, "other": {NotOK: []string{"mode"}},
	}}
	want := []string{
		`native: known: 0 ok, 2 not: limit of pids; name: the list says "limit .*"`,
		"native: other: 0 ok, 1 not: mode",
		"native: removed is listed, and is no program",
	}
	if problems := compare([]report{bad}, list, true); !slices.Equal(problems, want) {
		t.Errorf("%q", problems)
	}
	passing := report{"native", map[string]result{"known": {OK: 2}}}
	if problems := compare([]report{passing}, list, false); !slices.Equal(problems, []string{"native: known passes, and is listed"}) {
		t.Errorf("%q", problems)
	}
}

func TestEveryDeviationHasAReasonAndOneEntry(t *testing.T) {
	type key struct{ program, column string }
	seen := map[key]bool{}
	for _, d := range deviations() {
		if d.reason == "" || len(d.columns) == 0 {
			t.Errorf("%s has no reason or no column", d.program)
		}
		for _, c := range d.columns {
			if _, err := columnsNamed(c); err != nil || seen[key{d.program, c}] {
				t.Errorf("%s with %s: a second entry, or %v", d.program, c, err)
			}
			seen[key{d.program, c}] = true
		}
	}
}
