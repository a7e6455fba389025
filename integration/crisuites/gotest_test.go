package main

import (
	"os"
	"path/filepath"
	"testing"
)

const verbose = `=== RUN   TestGood
--- PASS: TestGood (0.01s)
=== RUN   TestBad
    bad_test.go:12: first words
=== RUN   TestBad/part
    bad_test.go:14: it failed
    --- FAIL: TestBad/part (0.10s)
--- FAIL: TestBad (0.20s)
=== RUN   TestAbsent
    absent_test.go:3: not here
--- SKIP: TestAbsent (0.00s)
=== RUN   TestEndless
panic: test timed out
`

func TestTheOutputOfGoTestIsAReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(file, []byte(verbose), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := readGoTest("runc", file)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]spec{
		"TestGood":     {passed, ""},
		"TestBad":      {failed, "it failed"},
		"TestBad/part": {failed, "it failed"},
		"TestAbsent":   {skipped, "not here"},
		"TestEndless":  {failed, "the suite ended before the test did"},
	}
	if len(r.specs) != len(want) {
		t.Errorf("%v", r.specs)
	}
	for name, s := range want {
		if r.specs[name] != s {
			t.Errorf("%s: %v, want %v", name, r.specs[name], s)
		}
	}
	if err := os.WriteFile(file, []byte("panic: no\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readGoTest("runc", file); err == nil {
		t.Error("a suite of no tests has a report")
	}
}
