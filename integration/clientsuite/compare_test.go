package main

import (
	"strings"
	"testing"
)

// resultsOf makes a column of results from "pass A", "fail A/b" and so on.
func resultsOf(lines ...string) results {
	r := results{}
	for _, l := range lines {
		what, test, _ := strings.Cut(l, " ")
		r[test] = &result{outcome: outcome(what), output: []string{"    x_test.go:1: said by " + test}}
	}
	return r
}

func TestProblems(t *testing.T) {
	list := []exception{{test: "Excepted", reason: "because"}, {test: "Parent/excepted", reason: "why not"}, {test: "Slow", reason: "slow", mayPass: true}}
	for _, c := range []struct {
		name      string
		runc, rkt []string
		want      []string // in this order, a part of each problem
	}{
		{"all pass", []string{"pass A"}, []string{"pass A"}, nil},
		{"a regression", []string{"pass A"}, []string{"fail A"}, []string{"A passes with runc, and with rkt: fail"}},
		{"a skipped test is a regression", []string{"pass A"}, []string{"skip A"}, []string{"A passes with runc, and with rkt: skip"}},
		{"a test that did not run is a regression", []string{"pass A"}, nil, []string{"A passes with runc, and with rkt: did not run"}},
		{"what fails with runc may fail", []string{"fail A"}, []string{"fail A"}, nil},
		{"what fails with runc may pass", []string{"fail A"}, []string{"pass A"}, nil},
		{"an exception", []string{"pass Excepted", "pass Excepted/x"}, []string{"skip Excepted"}, nil},
		{"an exception that may pass", []string{"pass Slow"}, []string{"pass Slow"}, nil},
		{"an exception that passes", []string{"pass Excepted"}, []string{"pass Excepted"}, []string{"Excepted passes with rkt"}},
		{"a sub-test of a failed exception may pass", []string{"pass Excepted", "pass Excepted/x"}, []string{"fail Excepted", "pass Excepted/x"}, nil},
		{"an excepted sub-test excuses its parent only", []string{"pass Parent", "pass Parent/excepted", "pass Parent/other"},
			[]string{"fail Parent", "fail Parent/excepted", "fail Parent/other"}, []string{"Parent/other passes"}},
		{"a parent that fails by itself", []string{"pass A", "pass A/x"}, []string{"fail A", "pass A/x"}, []string{"A passes"}},
		{"sub-tests of a skipped parent", []string{"pass A", "pass A/x"}, []string{"skip A"}, []string{"A passes", "A/x passes"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := compare(resultsOf(c.runc...), "rkt", resultsOf(c.rkt...), list, false).problems
			if len(got) != len(c.want) {
				t.Fatalf("problems %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("problem %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
}

func TestAnExceptionThatNamesNoTestIsAProblemOfAWholeRun(t *testing.T) {
	list := []exception{{test: "Gone", reason: "because"}}
	columns := resultsOf("pass A")
	if got := compare(columns, "rkt", columns, list, true).problems; len(got) != 1 || !strings.Contains(got[0], "Gone") {
		t.Errorf("problems %q", got)
	}
	if got := compare(columns, "rkt", columns, list, false).problems; len(got) != 0 {
		t.Errorf("problems of a part of the suite: %q", got)
	}
}

func TestEveryExceptionHasItsOwnReasonAndName(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range append(exceptions(), exceptionsOfMachines()...) {
		if e.reason == "" || !strings.HasPrefix(e.test, "Test") || seen[e.test] {
			t.Errorf("%+v", e)
		}
		seen[e.test] = true
	}
}

func TestTheDocumentShowsBothColumnsAndTheReason(t *testing.T) {
	runc := resultsOf("pass A", "pass A/x", "pass A/y", "pass Excepted", "pass Excepted/z", "skip S")
	rkt := resultsOf("pass A", "pass A/x", "skip A/y", "skip Excepted", "skip S")
	d := document{
		containerd: "2.4.2", runc: "1.1.5", cgroups: "v1",
		comparison: compare(runc, "rkt", rkt, []exception{{test: "Excepted", reason: "because | of"}}, true),
		columns: []run{
			{column: column{name: "runc"}, results: runc, calls: calls{"Kill": {"NOT_FOUND": 2, "OK": 1}, "Update": {"OK": 1}}},
			{column: column{name: "rkt"}, results: rkt, calls: calls{"Kill": {"OK": 1}}},
		},
	}.String()
	for _, want := range []string{
		"| runc | 2 | 0 | 1 |\n| rkt | 1 | 0 | 2 |\n",
		"| A | pass | pass |  |\n| …/y | pass | skip | **regression** |\n",
		"| Excepted | pass | skip | because \\| of |\n",
		"| S | skip | skip | said by S |\n",
		"| Kill | OK, NOT_FOUND | OK |\n| Update | OK |  |\n",
	} {
		if !strings.Contains(d, want) {
			t.Errorf("no %q in:\n%s", want, d)
		}
	}
	for _, not := range []string{"…/x", "…/z"} { // passes in both columns; has no row of its own
		if strings.Contains(d, not) {
			t.Errorf("%s is listed:\n%s", not, d)
		}
	}
}
