package main

import (
	"fmt"
	"slices"
	"strings"
)

// exception is a test that is not expected to pass with our shim, with its sub-tests.
type exception struct {
	test    string
	reason  string
	mayPass bool // on a fast host
}

// covers reports whether a test or one of its parents is the exception.
func (e exception) covers(test string) bool {
	return test == e.test || strings.HasPrefix(test, e.test+"/")
}

// row is a test with its outcomes in both columns.
type row struct {
	test       string
	runc, ours outcome
	reason     string // why it does not pass in one of the columns
}

// comparison is the result of comparing two columns.
type comparison struct {
	rows []row
	// problems has a line for each test that fails with our shim only, and for each wrong entry in
	// the list of exceptions.
	problems []string
}

// compare compares the column of a name with runc. all means that every test of the suite has run;
// then an exception that names no test is a problem.
func compare(runc results, name string, ours results, exceptions []exception, all bool) comparison {
	var c comparison
	for _, test := range testsOf(runc, ours) {
		r := row{test: test, runc: runc.of(test), ours: ours.of(test)}
		excepted := slices.IndexFunc(exceptions, func(e exception) bool { return e.covers(test) })
		switch {
		case r.ours == passed && excepted >= 0 && exceptions[excepted].test == test && !exceptions[excepted].mayPass:
			c.problem("%s passes with %s: it is no exception any more", test, name)
		case excepted >= 0 && r.ours != passed:
			r.reason = exceptions[excepted].reason
		case r.runc == passed && r.ours != passed && !excusedByChild(test, runc, ours):
			c.problem("%s passes with runc, and with %s: %s", test, name, orMissing(r.ours))
			r.reason = "**regression**"
		case r.runc != passed && runc[test] != nil:
			r.reason = runc[test].said()
		}
		isSub := strings.Contains(test, "/")
		notReached := isSub && excepted >= 0 && ours[test] == nil // the outcome of its parent is enough
		if !isSub || !notReached && (r.runc != r.ours || r.ours != passed) {
			c.rows = append(c.rows, r)
		}
	}
	for _, e := range exceptions {
		if all && runc[e.test] == nil && ours[e.test] == nil {
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
func excusedByChild(test string, runc, ours results) bool {
	for child := range runc {
		if strings.HasPrefix(child, test+"/") && ours[child] != nil && ours[child].outcome != passed {
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
