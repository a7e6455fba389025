package wait

import (
	"testing"
	"time"
)

func TestBusynessIsTheNumberOfProcessesThatWantAProcessor(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0.10 9.00 9.00 1/242 26509": 1,
		"5.10 0.00 0.00 1/242 26509": 3,
		"0.10 0.00 0.00 8/242 26509": 4,
		"90.1 0.00 0.00 8/242 26509": mostBusyness,
		"":                           1,
	} {
		if got := busyness(text, 2); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := Busyness(); got < Slowness || got > mostBusyness*Slowness {
		t.Errorf("here it is %d", got)
	}
}
