package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSamplesAreWrittenInTheOrderInWhichTheyWereTaken(t *testing.T) {
	subjects, err := chooseSubjects("native,runc")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "samples.json")
	r := results{opExec: {"native": {3, 1, 2}, "runc": {6, 5, 4}}}
	if err := writeJSON(path, &machine{Kernel: "6.1"}, subjects, r); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Machine.Kernel != "6.1" || got.Runtimes["runc"] != "io.containerd.runc.v2" || len(got.Operations) != 1 {
		t.Errorf("%s", text)
	}
	if s := got.Operations[0].Samples["native"]; !slices.Equal(s, []float64{3, 1, 2}) {
		t.Errorf("samples %v", s)
	}
}
