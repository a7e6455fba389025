package main

import (
	"fmt"
	"slices"
	"strings"
)

// exception is a test that is not expected to pass with rkt, with its sub-tests.
type exception struct {
	test   string
	reason string
}

// covers reports whether a test or one of its parents is the exception.
func (e exception) covers(test string) bool {
	return test == e.test || strings.HasPrefix(test, e.test+"/")
}

// row is a test with its outcomes in both columns.
type row struct {
	test      string
	runc, rkt outcome
	reason    string // why it does not pass in one of the columns
}

// comparison is the result of comparing two columns.
type comparison struct {
	rows []row
	// problems has a line for each test that fails with rkt only, and for each wrong entry in
	// the list of exceptions.
	problems []string
}

// compare compares rkt with runc. all means that every test of the suite has run; then an
// exception that names no test is a problem.
func compare(runc, rkt results, exceptions []exception, all bool) comparison {
	var c comparison
	for _, test := range testsOf(runc, rkt) {
		r := row{test: test, runc: runc.of(test), rkt: rkt.of(test)}
		excepted := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(test) })
		switch {
		case r.rkt == passed && excepted >= 0 && exceptions[excepted].test == test:
			c.problem("%s passes with rkt: it is no exception any more", test)
		case excepted >= 0 && r.rkt != passed:
			r.reason = exceptions[excepted].reason
		case r.runc == passed && r.rkt != passed && !excusedByChild(test, runc, rkt):
			c.problem("%s passes with runc, and with rkt: %s", test, orMissing(r.rkt))
			r.reason = "**regression**"
		case r.runc != passed && runc[test] != nil:
			r.reason = runc[test].said()
		}
		isSub := strings.Contains(test, "/")
		notReached := isSub && excepted >= 0 && rkt[test] == nil // the outcome of its parent is enough
		if !isSub || !notReached && (r.runc != r.rkt || r.rkt != passed) {
			c.rows = append(c.rows, r)
		}
	}
	for _, e := range exceptions {
		if all && runc[e.test] == nil && rkt[e.test] == nil {
			c.problem("the list of exceptions names %s, which the suite does not have", e.test)
		}
	}
	return c
}

func (c *comparison) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// testsOf lists the tests of some columns, sub-tests after their parents.
func testsOf(columns ...results) []string {
	var all []string
	for _, c := range columns {
		for test := range c {
			all = append(all, test)
		}
	}
	slices.SortFunc(all, func(a, b string) int {
		return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/"))
	})
	return slices.Compact(all)
}

// excusedByChild reports whether a test fails because of a sub-test, which has a row of its
// own.
func excusedByChild(test string, runc, rkt results) bool {
	for child := range runc {
		if strings.HasPrefix(child, test+"/") && rkt[child] != nil && rkt[child].outcome != passed {
			return true
		}
	}
	return false
}

func orMissing(o outcome) string {
	if o == "" {
		return "did not run"
	}
	return string(o)
}
