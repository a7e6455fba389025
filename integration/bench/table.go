package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// table renders the results as a Markdown table whose source is readable as well. Each
// subject has a column with medians and 90th percentiles, and each subject except the
// baseline has a column of ratios. For operations where more is better, the 10th percentile
// takes the place of the 90th, so the percentile always shows the bad cases. The budgets
// are for native. With samples of native in an earlier run there is a column that compares
// native with them.
func (r results) table(subjects []subject, before map[string][]float64) string {
	head := []string{"", "n", "unit"}
	for _, s := range subjects {
		head = append(head, s.name+" (p90)")
	}
	compared := comparedSubjects(subjects)
	for _, s := range compared {
		head = append(head, s.name+"/"+baseline)
	}
	if before != nil {
		head = append(head, "native/before")
	}
	rows := [][]string{append(head, "budget")}
	for _, op := range r.operations() {
		rows = append(rows, r.row(op, subjects, compared, before))
	}
	return render(rows)
}

// document returns docs/results/performance.md.
func document(m *machine, table string) string {
	return fmt.Sprintf(`# Performance, measured

<!-- Written by make bench BENCH_RECORD=1. Do not edit: the next run overwrites it. -->

%s
%s
Medians, with the percentile of the bad end in brackets: the 90th, or the 10th where more is
better. Processor time and page faults are those of containerd, ctr, the shims, the stage1 and the
containers together, with the work that follows an answer. The kernel's count of page faults may
lack the last 64 of each processor. null is a shim above an empty pod
(internal/nullshim): containerd and the clients take the rest. The budgets are for native, and a
budget with × is a ratio to runc, but for those of many pods, containers and execs. Of these, each
of the last %d is compared with the median of as many first ones.

[performance.json](performance.json) has every sample. The plot of
[the README](../pictures/performance.svg) is made of it.
`, m, table, compared)
}

// comparedSubjects returns the subjects that are compared with the baseline, if the baseline is
// among the subjects.
func comparedSubjects(subjects []subject) []subject {
	var others []subject
	for _, s := range subjects {
		if s.name != baseline {
			others = append(others, s)
		}
	}
	if len(others) == len(subjects) {
		return nil
	}
	return others
}

func (r results) row(op operation, subjects, compared []subject, before map[string][]float64) []string {
	d, samples := op.describe(), r[op]
	n := 0
	for _, s := range subjects {
		n = max(n, len(samples[s.name]))
	}
	row := []string{d.name, fmt.Sprint(n), d.unit}
	for _, s := range subjects {
		row = append(row, cell(samples[s.name], d.more))
	}
	for _, s := range compared {
		row = append(row, ratioCell(samples[s.name], samples[baseline]))
	}
	if before != nil {
		row = append(row, ratioCell(samples["native"], before[d.name]))
	}
	return append(row, d.judge(samples))
}

// judge returns the cell of the budget, with the verdict if native was measured.
func (d description) judge(samples map[string][]float64) string {
	native, base := samples["native"], samples[baseline]
	if d.budget.floor {
		base = samples[floor]
	}
	return d.judgeWith(native, base)
}

// judgeWith is judge for any samples and those that they are compared with.
func (d description) judgeWith(samples, base []float64) string {
	switch {
	case d.budget == (budget{}):
		return ""
	case len(samples) > 0 && d.budget.absolute:
		return d.bound() + ", " + d.verdict(median(samples))
	case len(samples) > 0 && len(base) > 0:
		return d.bound() + ", " + d.verdict(ratio(samples, base))
	}
	return d.bound()
}

// ratio returns the ratio of two medians.
func ratio(samples, base []float64) float64 { return median(samples) / median(base) }

func ratioCell(samples, base []float64) string {
	if len(samples) == 0 || len(base) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", ratio(samples, base))
}

// cell returns a median with the percentile of the bad end, or the only sample.
func cell(samples []float64, more bool) string {
	bad := 90.0
	if more {
		bad = 10
	}
	switch len(samples) {
	case 0:
		return "–"
	case 1:
		return number(samples[0])
	}
	return fmt.Sprintf("%s (%s)", number(median(samples)), number(percentile(samples, bad)))
}

// number formats a value with three significant digits.
func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// render pads the cells of a Markdown table, whose first row is its head. The
// first and the last column are text, the others numbers.
func render(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var out strings.Builder
	line := func(cells []string) {
		for i, c := range cells {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if isText(i, len(cells)) {
				fmt.Fprintf(&out, "| %s%s ", c, pad)
			} else {
				fmt.Fprintf(&out, "| %s%s ", pad, c)
			}
		}
		out.WriteString("|\n")
	}
	line(rows[0])
	for i, w := range widths {
		if rule := strings.Repeat("-", w+1); isText(i, len(widths)) {
			fmt.Fprintf(&out, "|%s-", rule)
		} else {
			fmt.Fprintf(&out, "|%s:", rule)
		}
	}
	out.WriteString("|\n")
	for _, row := range rows[1:] {
		line(row)
	}
	return out.String()
}

// isText reports whether column i of n is one of text.
func isText(i, n int) bool { return i == 0 || i == n-1 }
