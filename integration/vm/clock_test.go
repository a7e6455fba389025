package main

import (
	"fmt"
	"testing"
)

// The kernel takes a wrong rate as it is, and its clock is then wrong by the same factor.
func TestTheRateOfTheProcessorsCounterIsTheSameEachTime(t *testing.T) {
	var rates [2]float64
	for i := range rates {
		if _, err := fmt.Sscanf(clockArgument(), " tsc_early_khz=%g", &rates[i]); err != nil {
			t.Fatal(err)
		}
	}
	if ratio := rates[0] / rates[1]; rates[0] < 1000 || ratio < 0.99 || ratio > 1.01 {
		t.Errorf("%v kHz", rates)
	}
}
