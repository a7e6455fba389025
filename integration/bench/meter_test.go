package main

import "testing"

func TestCountsOfBothVersionsOfCgroups(t *testing.T) {
	for _, c := range []struct {
		text  string
		parse func(string) (float64, error)
		want  float64
	}{
		{"1234567\n", parseCPUUsage, 1.234567},
		{"usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n", parseCPUStat, 1.234},
		{"pgfault 1\ntotal_cache 5\ntotal_pgfault 23\n", parseFaults, 23},
		{"anon 4096\npgfault 24\npgmajfault 1\n", parseFaults, 24},
	} {
		if got, err := c.parse(c.text); err != nil || got != c.want {
			t.Errorf("%q: %v, %v; want %v", c.text, got, err, c.want)
		}
	}
	for _, parse := range []func(string) (float64, error){parseCPUStat, parseFaults} {
		if _, err := parse("user_usec 1\n"); err == nil {
			t.Error("a text without the count was accepted")
		}
	}
}
