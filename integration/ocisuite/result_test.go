package main

import (
	"slices"
	"testing"
)

func TestChecksOfAProgramAreCounted(t *testing.T) {
	r := readTAP("TAP version 13\nok 1 - has a name\n  ---\n  {\n    \"stdout\": \"ok 1\\nnot ok 2 - inside\\n\"\n  }\n  ...\n" +
		"ok 2 # SKIP not set\nnot ok 3 - has a limit\nok 4 - \n1..4\n")
	if r.OK != 2 || r.Skipped != 1 || !slices.Equal(r.NotOK, []string{"has a limit"}) {
		t.Errorf("%+v", r)
	}
	if r.passes() || r.String() != "2 ok, 1 not" {
		t.Errorf("%s", r)
	}
}

func TestAProgramThatReportsAnErrorInPlaceOfACheckFails(t *testing.T) {
	const diagnostic = "  ---\n  {\n    \"error\": \"out of order\\nRefer to: x\"\n  }\n  ...\n"
	if r := readTAP("TAP version 13\n" + diagnostic + "1..0\n"); r.passes() || !slices.Equal(r.NotOK, []string{"out of order"}) {
		t.Errorf("%+v", r)
	}
	if r := readTAP("ok 1 - an error is expected\n" + diagnostic); !r.passes() {
		t.Errorf("%+v", r)
	}
	if r := readTAP("TAP version 13\n1..0\n"); !r.passes() {
		t.Errorf("%+v", r)
	}
}

func TestAProgramThatEndsWithAnErrorFails(t *testing.T) {
	r := readTAP("ok 1 - fine\n")
	r.Ended = "exit status 1"
	if r.passes() || r.String() != "1 ok, 0 not, exit status 1" {
		t.Errorf("%s", r)
	}
}
