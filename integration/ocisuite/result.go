package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// result is the output of one program, in the Test Anything Protocol, and the way in which
// the program ended.
type result struct {
	OK      int      // checks that pass
	Skipped int      // checks that the program skips
	NotOK   []string // the texts of the checks that fail, in their order
	Ended   string   // how the program ended; empty for code 0
}

// report has the results of a column, by the programs' names.
type report struct {
	column  string
	results map[string]result
}

// line matches the line of a check. It leaves out the number after the words.
var line = regexp.MustCompile(`^\s*(not ok|ok)\b\s*\d*\s*(?:- )?(.*)$`)

// reported matches a diagnostic. Some programs print one in place of a check.
var reported = regexp.MustCompile(`^\s*"error": "((?:[^"\\]|\\[^n])*)`)

// readTAP reads the output of a program. A program passes on the output of runtimetest in a
// YAML block with escaped line ends, which readTAP ignores: the program sums it up in a
// check of its own.
func readTAP(output string) result {
	var r result
	var errors []string
	for l := range strings.Lines(output) {
		l = strings.TrimRight(l, "\n")
		if m := reported.FindStringSubmatch(l); m != nil {
			errors = append(errors, m[1])
		}
		m := line.FindStringSubmatch(l)
		switch {
		case m == nil:
		case m[1] == "not ok":
			r.NotOK = append(r.NotOK, m[2])
		case strings.HasPrefix(strings.ToUpper(m[2]), "# SKIP"):
			r.Skipped++
		default:
			r.OK++
		}
	}
	if r.OK+r.Skipped+len(r.NotOK) == 0 {
		r.NotOK = errors
	}
	return r
}

// passes reports whether a program passes. A program that prints neither checks nor errors
// passes if it ends with code 0.
func (r result) passes() bool { return len(r.NotOK) == 0 && r.Ended == "" }

// String is the document's word for a result.
func (r result) String() string {
	switch {
	case r.passes() && r.OK == 0 && r.Skipped > 0:
		return "skip"
	case r.passes():
		return "pass"
	case r.Ended != "":
		return fmt.Sprintf("%d ok, %d not, %s", r.OK, len(r.NotOK), r.Ended)
	default:
		return fmt.Sprintf("%d ok, %d not", r.OK, len(r.NotOK))
	}
}

func (r report) passed() int {
	n := 0
	for _, one := range r.results {
		if one.passes() {
			n++
		}
	}
	return n
}

// failed returns the texts of failed checks, without duplicates.
func (r result) failed() []string { return slices.Compact(slices.Sorted(slices.Values(r.NotOK))) }

// reasons lists the texts of failed checks, without duplicates, up to a limit.
func (r result) reasons(limit int) string {
	all := r.failed()
	if len(all) > limit {
		all = append(all[:limit:limit], fmt.Sprintf("and %d more", len(all)-limit))
	}
	return strings.Join(all, "; ")
}
