package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// outcome of a test. Empty means that the test did not run.
type outcome string

const (
	passed  outcome = "pass"
	failed  outcome = "fail"
	skipped outcome = "skip"
)

type result struct {
	outcome outcome
	elapsed float64 // seconds
	output  []string
}

// results are those of one column, by the full name of the test.
type results map[string]*result

// event is a line of `go tool test2json`.
type event struct {
	Action  string
	Test    string
	Elapsed float64
	Output  string
}

// read reads the events of a run to their end, and calls done for every test that ends. Output
// that belongs to no test, such as the suite's stderr and the log of its containerd, goes to
// log.
func (r results) read(events io.Reader, log io.Writer, done func(test string, res *result)) error {
	s := bufio.NewScanner(events)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			return fmt.Errorf("test2json: %w: %s", err, s.Bytes())
		}
		if e.Test == "" {
			fmt.Fprint(log, e.Output)
			continue
		}
		res := r[e.Test]
		if res == nil {
			res = &result{}
			r[e.Test] = res
		}
		switch e.Action {
		case "output":
			res.output = append(res.output, strings.TrimRight(e.Output, "\n"))
		case "pass", "fail", "skip":
			res.outcome, res.elapsed = outcome(e.Action), e.Elapsed
			done(e.Test, res)
		}
	}
	return s.Err()
}

// failUnfinished fails the tests that have no outcome because the suite ended before them.
func (r results) failUnfinished(done func(test string, res *result)) {
	for test, res := range r {
		if res.outcome == "" {
			res.outcome = failed
			res.output = append(res.output, "    suite.go:0: the suite ended before the test did")
			done(test, res)
		}
	}
}

// count counts tests, without sub-tests, by their outcome.
func (r results) count() map[outcome]int {
	n := map[outcome]int{}
	for test, res := range r {
		if !strings.Contains(test, "/") {
			n[res.outcome]++
		}
	}
	return n
}

// of returns the outcome of a test, or of its parent if the test was not reached.
func (r results) of(test string) outcome {
	for {
		if res := r[test]; res != nil {
			return res.outcome
		}
		i := strings.LastIndexByte(test, '/')
		if i < 0 {
			return ""
		}
		test = test[:i]
	}
}

// logLine matches the output of t.Log and similar functions.
var logLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// said returns the first message of a test, if it is one line.
func (r *result) said() string {
	for i, l := range r.output {
		m := logLine.FindStringSubmatch(l)
		if m == nil || strings.Contains(m[1], "level=") {
			continue
		}
		if text := strings.TrimSpace(m[1]); text != "" {
			return text
		}
		// testify's messages begin with an empty line.
		for _, next := range r.output[i+1:] {
			if _, text, ok := strings.Cut(next, "Error:"); ok && !strings.Contains(next, "Trace:") {
				return strings.TrimSpace(text)
			}
		}
	}
	return ""
}
