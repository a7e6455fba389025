package main

import (
	"strings"
	"testing"
)

const events = `{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Test":"TestA/sub"}
{"Action":"output","Test":"TestA/sub","Output":"    log_hook.go:47: time=\"x\" level=debug msg=\"fetch\"\n"}
{"Action":"output","Test":"TestA/sub","Output":"    a_test.go:5: \n"}
{"Action":"output","Test":"TestA/sub","Output":"        \tError Trace:\ta_test.go:5\n"}
{"Action":"output","Test":"TestA/sub","Output":"        \tError:      \tnot what it was\n"}
{"Action":"fail","Test":"TestA/sub","Elapsed":1.5}
{"Action":"output","Output":"the daemon's log\n"}
{"Action":"fail","Test":"TestA","Elapsed":2}
{"Action":"output","Test":"TestB","Output":"    b_test.go:7: no criu\n"}
{"Action":"skip","Test":"TestB"}
{"Action":"run","Test":"TestC"}
`

func read(t *testing.T) (r results, log string, done []string) {
	t.Helper()
	r = results{}
	var out strings.Builder
	note := func(test string, res *result) { done = append(done, test+" "+string(res.outcome)) }
	if err := r.read(strings.NewReader(events), &out, note); err != nil {
		t.Fatal(err)
	}
	r.failUnfinished(note)
	return r, out.String(), done
}

func TestResultsAreReadFromEvents(t *testing.T) {
	r, log, done := read(t)
	if got, want := strings.Join(done, ", "), "TestA/sub fail, TestA fail, TestB skip, TestC fail"; got != want {
		t.Errorf("ended: %s; want %s", got, want)
	}
	if log != "the daemon's log\n" {
		t.Errorf("log %q", log)
	}
	if n := r.count(); n[failed] != 2 || n[skipped] != 1 || n[passed] != 0 {
		t.Errorf("counts %v", n)
	}
	if o := r.of("TestB/never/ran"); o != skipped {
		t.Errorf("a sub-test of a skipped test: %q", o)
	}
	if o := r.of("TestD"); o != "" {
		t.Errorf("a test that did not run: %q", o)
	}
}

func TestWhatATestSaidIsItsFirstOwnLine(t *testing.T) {
	r, _, _ := read(t)
	for test, want := range map[string]string{
		"TestA/sub": "not what it was", "TestB": "no criu", "TestC": "the suite ended before the test did", "TestA": "",
	} {
		if got := r[test].said(); got != want {
			t.Errorf("%s said %q, want %q", test, got, want)
		}
	}
}

func TestALineThatIsNoEventIsAnError(t *testing.T) {
	err := results{}.read(strings.NewReader("flag provided but not defined\n"), &strings.Builder{}, nil)
	if err == nil || !strings.Contains(err.Error(), "flag provided") {
		t.Errorf("%v", err)
	}
}

func TestColumnsAreInOrder(t *testing.T) {
	columns, err := columnsNamed("rkt,runc")
	if err != nil || len(columns) != 2 || columns[0].name != "runc" {
		t.Errorf("%v, %v", columns, err)
	}
	if _, err := columnsNamed("runc,crun"); err == nil {
		t.Error("crun is taken")
	}
}
