package main

import (
	"slices"
	"testing"
)

func TestPercentileIsTheNearestRank(t *testing.T) {
	ten := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	for _, c := range []struct {
		samples []float64
		p, want float64
	}{
		{ten, 90, 9},
		{ten, 91, 10},
		{ten, 100, 10},
		{ten, 10, 1},
		{ten, 1, 1},
		{[]float64{3, 1, 2}, 50, 2},
		{[]float64{7}, 90, 7},
		{nil, 90, 0},
	} {
		if got := percentile(c.samples, c.p); got != c.want {
			t.Errorf("percentile %v of %v is %v, want %v", c.p, c.samples, got, c.want)
		}
	}
	if ten[0] != 10 {
		t.Error("percentile has sorted its argument: the raw samples lose their order")
	}
}

func TestMedianOfAnEvenNumberIsTheMeanOfTheMiddle(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    float64
	}{
		{[]float64{5, 1, 4}, 4},
		{[]float64{1, 100, 3, 2}, 2.5},
		{[]float64{7}, 7},
		{nil, 0},
	} {
		if got := median(c.samples); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.samples, got, c.want)
		}
	}
}

func TestResultsKeepTheOrderOfSamplesAndOfTheTable(t *testing.T) {
	r := results{}
	r.add(opExec, "runc", 3)
	r.add(opRun, "runc", 2)
	r.add(opRun, "runc", 1)
	if got := r.operations(); !slices.Equal(got, []operation{opRun, opExec}) {
		t.Errorf("operations %v", got)
	}
	if got := r[opRun]["runc"]; !slices.Equal(got, []float64{2, 1}) {
		t.Errorf("samples %v", got)
	}
}

func TestEveryOperationHasADescriptionOfItsOwn(t *testing.T) {
	seen := map[string]bool{}
	for op := opRun; op <= opShimCPU; op++ {
		d := op.describe()
		if d.name == "" || d.unit == "" || seen[d.name] {
			t.Errorf("operation %d: %+v", op, d)
		}
		seen[d.name] = true
	}
}
