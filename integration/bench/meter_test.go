package main

import (
	"testing"
	"time"
)

func TestProcessorTimeOfBothVersionsOfCgroups(t *testing.T) {
	for text, parse := range map[string]func(string) (time.Duration, error){
		"1234567\n": parseCPUUsage,
		"usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n": parseCPUStat,
	} {
		got, err := parse(text)
		if err != nil || got.Truncate(time.Microsecond) != 1234*time.Microsecond {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if _, err := parseCPUStat("user_usec 1\n"); err == nil {
		t.Error("a text without usage_usec was accepted")
	}
}
