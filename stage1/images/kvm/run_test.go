package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

// A client learns why a pod is not ready only if `run` gives up before stage 0 kills it.
func TestRunGivesUpBeforeItsDeadline(t *testing.T) {
	text, err := os.ReadFile("manifest")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), `"run=`)
	word, _, _ := strings.Cut(after, " ")
	deadline, err := time.ParseDuration(word)
	if err != nil || readyWithin > deadline-10*time.Second {
		t.Errorf("run gives up after %s, and its deadline is %s: %v", readyWithin, word, err)
	}
}
