package main

import (
	"strings"
	"testing"
	"time"
)

func TestAPackageThatFailsWithoutAFailedTestIsNamedAndCounted(t *testing.T) {
	var out strings.Builder
	r := report{out: &out, start: time.Now(), packages: map[string]*pkg{}}
	err := r.read(strings.NewReader(`{"Action":"run","Package":"guest/pod","Test":"TestA"}
{"Action":"pass","Package":"guest/pod","Test":"TestA"}
{"Action":"output","Package":"guest/pod","Output":"pod: left at the end: a mount\n"}
{"Action":"fail","Package":"guest/pod","Elapsed":1}
{"Action":"run","Package":"guest/stage1","Test":"TestB"}
{"Action":"fail","Package":"guest/stage1","Test":"TestB"}
{"Action":"fail","Package":"guest/stage1","Elapsed":1}
`))
	if err != nil || r.passed != 1 || r.failed != 2 {
		t.Errorf("%d passed, %d failed, %v", r.passed, r.failed, err)
	}
	const named = "--- FAIL: guest/pod: none of its tests failed, but the package did:\npod: left at the end: a mount\n"
	if said := out.String(); !strings.Contains(said, named) || strings.Contains(said, "FAIL: guest/stage1:") {
		t.Errorf("the report is\n%s", said)
	}
}
