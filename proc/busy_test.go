package proc

import "testing"

func TestALimitThatPassesOnABusyHostSaysSo(t *testing.T) {
	for loadavg, want := range map[string]string{
		"98.20 60.01 30.00 7/400 4711\n": " on a busy host (load average 98.20, 2 processors)",
		"8.00 1.00 1.00 1/1 1\n":         " on a busy host (load average 8.00, 2 processors)",
		"7.99 60.01 30.00 7/400 4711\n":  "",
		"":                               "",
	} {
		if got := busy(loadavg, 2); got != want {
			t.Errorf("%q: %q, want %q", loadavg, got, want)
		}
	}
}
