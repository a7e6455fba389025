package main

import (
	"strings"
	"testing"
)

const sample = `[{"SpecReports": [
	{"LeafNodeType": "BeforeSuite", "State": "passed"},
	{"ContainerHierarchyTexts": ["[k8s.io] Pod", "sysctls"], "LeafNodeType": "It", "LeafNodeText": "safe ones [Conformance]", "State": "passed"},
	{"ContainerHierarchyTexts": ["[k8s.io] Pod"], "LeafNodeType": "It", "LeafNodeText": "AppArmor", "State": "skipped", "Failure": {"Message": "no AppArmor\nhere"}},
	{"ContainerHierarchyTexts": ["[k8s.io] Pod"], "LeafNodeType": "It", "LeafNodeText": "benchmark", "State": "skipped"},
	{"ContainerHierarchyTexts": ["[k8s.io] Pod"], "LeafNodeType": "It", "LeafNodeText": "ports", "State": "panicked", "Failure": {"Message": "x"}}
]}]`

func parsed(t *testing.T, handler, text string) report {
	t.Helper()
	r, err := parseGinkgo(handler, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAReportHasTheSpecsThatRan(t *testing.T) {
	r := parsed(t, "runc", sample)
	want := map[string]spec{
		"Pod / sysctls / safe ones": {passed, ""},
		"Pod / AppArmor":            {skipped, "no AppArmor"},
		"Pod / ports":               {failed, "x"},
	}
	if len(r.specs) != len(want) {
		t.Errorf("%v", r.specs)
	}
	for name, s := range want {
		if r.specs[name] != s {
			t.Errorf("%s: %v, want %v", name, r.specs[name], s)
		}
	}
}

func TestAReportOfNothingIsAnError(t *testing.T) {
	for _, text := range []string{"", "[]", `[{"SpecReports": []}]`} {
		if _, err := parseGinkgo("runc", []byte(text)); err == nil {
			t.Errorf("%q was a report", text)
		}
	}
}

func TestOnlyWhatPassesInTheFirstColumnIsAProblem(t *testing.T) {
	worse := strings.Replace(sample, `"passed"},
	{"ContainerHierarchyTexts": ["[k8s.io] Pod"], "LeafNodeType": "It", "LeafNodeText": "AppArmor"`, `"failed"},
	{"ContainerHierarchyTexts": ["[k8s.io] Pod"], "LeafNodeType": "It", "LeafNodeText": "AppArmor"`, 1)
	runc, rkt := parsed(t, "runc", sample), parsed(t, "rkt", worse)
	if c := compare([]report{runc, rkt}, nil); len(c.problems) != 1 || !strings.Contains(c.problems[0], "safe ones") {
		t.Errorf("%q", c.problems)
	}
	if c := compare([]report{rkt, runc}, nil); len(c.problems) != 0 {
		t.Errorf("%q", c.problems)
	}
	delete(rkt.specs, "Pod / sysctls / safe ones")
	if c := compare([]report{runc, rkt}, nil); len(c.problems) != 1 {
		t.Errorf("a spec that did not run: %q", c.problems)
	}
}
