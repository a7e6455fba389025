package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// compare returns the differences from the list of deviations: programs that fail and are
// not listed, that fail in other checks than those of the list, and listed programs that
// pass. If all programs have run, a listed program without a result is a difference, too.
func compare(reports []report, list []deviation, all bool) []string {
	var problems []string
	for _, r := range reports {
		say := func(format string, args ...any) {
			problems = append(problems, r.column+": "+fmt.Sprintf(format, args...))
		}
		for _, name := range slices.Sorted(maps.Keys(r.results)) {
			one, d := r.results[name], find(list, name, r.column)
			switch {
			case d == nil && !one.passes():
				say("%s: %s: %s", name, one, one.reasons(3))
			case d != nil && one.passes() && !d.varies:
				say("%s passes, and is listed", name)
			case d != nil && !d.covers(one):
				say("%s: %s: %s: the list says %q", name, one, one.reasons(3), d.checks)
			}
		}
		for _, d := range list {
			if _, ran := r.results[d.program]; all && !ran && slices.Contains(d.columns, r.column) {
				say("%s is listed, and is no program", d.program)
			}
		}
	}
	return problems
}

// find returns the entry of a program with a column, or nil.
func find(list []deviation, program, column string) *deviation {
	for i, d := range list {
		if d.program == program && slices.Contains(d.columns, column) {
			return &list[i]
		}
	}
	return nil
}

// covers reports whether the failed checks are those of the list.
func (d deviation) covers(r result) bool {
	checks := regexp.MustCompile("^(?:" + d.checks + ")$")
	return !slices.ContainsFunc(r.NotOK, func(text string) bool { return !checks.MatchString(text) })
}
