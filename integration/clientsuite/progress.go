package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// progress prints a line for every test that ends, with its outcomes in the columns that ran
// before.
type progress struct {
	out     io.Writer
	column  column
	earlier []run
}

func (p progress) show(test string, res *result) {
	if strings.Contains(test, "/") && res.outcome != failed {
		return
	}
	worse := res.outcome == failed && !slices.ContainsFunc(p.column.exceptions, func(e exception) bool { return e.covers(test) })
	fmt.Fprint(p.out, "    ")
	for _, r := range p.earlier {
		before := r.results.of(test)
		worse = worse && before == passed
		fmt.Fprintf(p.out, "%s %-4s  ", r.column.name, cell(before))
	}
	fmt.Fprintf(p.out, "%s %-4s  %5.1fs  %s\n", p.column.name, res.outcome, res.elapsed, test)
	if worse {
		p.explain(res)
	}
}

// explain prints the output of a test, without the logs of containerd in it.
func (p progress) explain(res *result) {
	for _, l := range res.output {
		if !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- ") && !strings.Contains(l, "level=") {
			fmt.Fprintf(p.out, "        %s\n", l)
		}
	}
}
