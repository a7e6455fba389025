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

// covers reports whether a test, or what it is a sub-test of, is the exception.
func (e exception) covers(test string) bool {
	return test == e.test || strings.HasPrefix(test, e.test+"/")
}

// row is a test with what became of it in both columns.
type row struct {
	test      string
	runc, rkt outcome
	reason    string // why it does not pass in one of them
}

// comparison is what two columns say together.
type comparison struct {
	rows []row
	// problems are why rkt is not on a par, or why the list of exceptions is
	// wrong, a line each.
	problems []string
}

// compare holds rkt to runc. With all, every test of the suite has run, and
// exceptions that name none of them are problems.
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
		notReached := isSub && excepted >= 0 && rkt[test] == nil // its parent says it all
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

// testsOf lists the tests of some columns, sub-tests behind their parents.
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

// excusedByChild reports whether a test fails because of a sub-test, which is
// judged by itself.
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
