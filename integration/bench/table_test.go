package main

import (
	"strings"
	"testing"
)

func TestTableComparesWithRuncAndJudgesNative(t *testing.T) {
	r := results{
		opRun:         {"native": {60, 50, 40}, "runc": {100, 300, 90}, "oci": {200, 200, 200}},
		opStart:       {"native": {1, 2}, "oci": {1.5, 1.5}}, // no baseline to compare with
		opCreateStart: {"runc": {3}},                         // no subject with a budget
		opExec:        {"native": {30}, "runc": {100}, "oci": {100}},
		opFurtherPSS:  {"native": {0.25}, "runc": {0.1}, "oci": {0.1}}, // an absolute budget
		opThroughput:  {"native": {2000, 1000, 1990}, "runc": {1000, 995, 1001}, "oci": {1, 1, 1}},
		opShimCPU:     {"native": {12.345}, "runc": {123.45}, "oci": {123.45}},
	}
	expectTable(t, r, "native,runc,oci", `
|                                      | n |  unit | native (p90) | runc (p90) |   oci (p90) | native/runc | oci/runc | budget            |
|--------------------------------------|--:|------:|-------------:|-----------:|------------:|------------:|---------:|-------------------|
| "ctr run --rm … true"                | 3 |    ms |  50.0 (60.0) |  100 (300) |   200 (200) |        0.50 |     2.00 | ≤ 0.6 ×, met      |
| Start of one more container          | 2 |    ms |  1.50 (2.00) |          – | 1.50 (1.50) |           – |        – |                   |
| Create + Start of one more container | 1 |    ms |            – |       3.00 |           – |           – |        – | ≤ 0.25 ×          |
| Exec + Start + Wait of "true"        | 1 |    ms |         30.0 |        100 |         100 |        0.30 |     1.00 | ≤ 0.25 ×, not met |
| PSS for each further container       | 1 |    MB |         0.25 |       0.10 |        0.10 |        2.50 |     1.00 | ≤ 0.5 MB, met     |
| throughput of stdout                 | 3 |  MB/s |  1990 (1000) | 1000 (995) | 1.00 (1.00) |        1.99 |     0.00 | ≥ 2 ×, not met    |
| the shim's CPU time for it           | 1 | ms/GB |         12.3 |        123 |         123 |        0.10 |     1.00 | ≤ 1 ×, met        |
`)
}

func TestTableWithoutRuncHasNoRatios(t *testing.T) {
	r := results{
		opExec:       {"native": {30}},
		opFurtherPSS: {"native": {0.75}},
	}
	expectTable(t, r, "native", `
|                                | n | unit | native (p90) | budget            |
|--------------------------------|--:|-----:|-------------:|-------------------|
| Exec + Start + Wait of "true"  | 1 |   ms |         30.0 | ≤ 0.25 ×          |
| PSS for each further container | 1 |   MB |         0.75 | ≤ 0.5 MB, not met |
`)
}

// expectTable compares with a table that has double quotes for backquotes.
func expectTable(t *testing.T, r results, runtimes, want string) {
	t.Helper()
	subjects, err := chooseSubjects(runtimes)
	if err != nil {
		t.Fatal(err)
	}
	want = strings.ReplaceAll(want, `"`, "`")
	if got := "\n" + r.table(subjects, nil); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

func TestGrowthIsJudgedByTheEmptyShims(t *testing.T) {
	r := results{
		opManyPods:     {"native": {1.3}, "null": {1.2}, "runc": {1.6}},
		opManyExecs:    {"native": {1.3}, "runc": {1.2}}, // nothing to judge it by
		opManyPodsOurs: {"native": {1.3, 1.1, 1.15}, "null": {1}, "runc": {1.6}},
	}
	subjects, err := chooseSubjects("native,null,runc")
	if err != nil {
		t.Fatal(err)
	}
	got := r.table(subjects, nil)
	for op, want := range map[operation]string{opManyPods: "≤ 1 × null, not met", opManyExecs: "≤ 1 × null", opManyPodsOurs: "≤ 1.2 ×, met"} {
		found := false
		for line := range strings.Lines(got) {
			cells := strings.Split(strings.Trim(line, "|\n"), "|")
			if strings.TrimSpace(cells[0]) != op.describe().name {
				continue
			}
			found = true
			if cell := strings.TrimSpace(cells[len(cells)-1]); cell != want {
				t.Errorf("%s: %q, want %q", op.describe().name, cell, want)
			}
		}
		if !found {
			t.Errorf("no line %q in\n%s", op.describe().name, got)
		}
	}
}

func TestTableComparesWithAnEarlierRun(t *testing.T) {
	subjects, err := chooseSubjects("native")
	if err != nil {
		t.Fatal(err)
	}
	r := results{opExec: {"native": {30}}, opStart: {"native": {1}}}
	got := r.table(subjects, map[string][]float64{opExec.describe().name: {60, 60, 10}})
	for _, want := range []string{"| native/before |", "|         30.0 |          0.50 | ≤ 0.25 ×", "|         1.00 |             – |"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestAShimIsThatOfTheSubjectInItsID(t *testing.T) {
	subjects, err := chooseSubjects("runc,runc-current")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range []string{
		"/x/containerd-shim-runc-v2 -namespace n -id runc-12 -address a",
		"/x/containerd-shim-runc-v2 -namespace n -id runc-current-3 -address a",
	} {
		for j, s := range subjects {
			if got := s.owns(line); got != (i == j) {
				t.Errorf("%s: %q: %v", s.name, line, got)
			}
		}
	}
}
