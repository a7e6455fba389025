package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
)

// outcome of a spec, in ginkgo's words.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	skipped outcome = "skipped"
)

// spec is the result of a spec.
type spec struct {
	outcome outcome
	reason  string
}

// report is the result of one column, by the specs' full names.
type report struct {
	handler string
	specs   map[string]spec
}

// suiteReport has the fields of ginkgo's JSON that are read.
type suiteReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
		Failure                 struct{ Message string }
	}
}

// readGinkgo reads a report of ginkgo's, in JSON.
func readGinkgo(handler, file string) (report, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return report{}, err
	}
	return parseGinkgo(handler, b)
}

func parseGinkgo(handler string, b []byte) (report, error) {
	var suites []suiteReport
	if err := json.Unmarshal(b, &suites); err != nil {
		return report{}, fmt.Errorf("ginkgo's report: %w", err)
	}
	r := report{handler: handler, specs: map[string]spec{}}
	for _, s := range suites {
		for _, one := range s.SpecReports {
			if one.LeafNodeType != "It" {
				continue
			}
			o := outcome(one.State)
			if o == skipped && one.Failure.Message == "" {
				continue // skipped by our own choice, or a benchmark
			}
			if o != passed && o != skipped { // panicked, timedout, interrupted, …
				o = failed
			}
			first, _, _ := strings.Cut(strings.TrimSpace(one.Failure.Message), "\n")
			r.specs[fullName(one.ContainerHierarchyTexts, one.LeafNodeText)] = spec{o, first}
		}
	}
	if len(r.specs) == 0 {
		return r, fmt.Errorf("ginkgo's report has no specs")
	}
	return r, nil
}

// fullName joins the names of a spec and of its parents.
func fullName(parents []string, name string) string {
	all := append(slices.Clone(parents), name)
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "[k8s.io] ")
	}
	return strings.ReplaceAll(strings.Join(all, " / "), " [Conformance]", "")
}

func (r report) count() map[outcome]int {
	n := map[outcome]int{}
	for _, s := range r.specs {
		n[s.outcome]++
	}
	return n
}

// comparison is the result of comparing the columns.
type comparison struct {
	reports []report
	names   []string
	// exceptions are those of the suite.
	exceptions map[string]string
	problems   []string
}

// compare compares all columns with the first.
func compare(reports []report, exceptions map[string]string) comparison {
	all := map[string]bool{}
	for _, r := range reports {
		for name := range r.specs {
			all[name] = true
		}
	}
	c := comparison{reports: reports, names: slices.Sorted(maps.Keys(all)), exceptions: exceptions}
	for _, name := range c.names {
		for _, r := range reports[1:] {
			if exceptions[r.handler+" "+name] != "" {
				continue
			}
			if reports[0].specs[name].outcome == passed && r.specs[name].outcome != passed {
				c.problems = append(c.problems, fmt.Sprintf("%s: %s: %s %s", r.handler, name, r.specs[name].outcome, r.specs[name].reason))
			}
		}
	}
	return c
}

// String is the block of the document.
func (c comparison) String() string {
	head, sums := []string{"test"}, []string{""}
	for _, r := range c.reports {
		head = append(head, r.handler)
		n := r.count()
		sums = append(sums, fmt.Sprintf("%d pass, %d fail, %d skip", n[passed], n[failed], n[skipped]))
	}
	rows := [][]string{head, sums}
	for _, name := range c.names {
		row := []string{name}
		for _, r := range c.reports {
			row = append(row, word(r.specs[name].outcome))
		}
		rows = append(rows, row)
	}
	return document.Table(rows) + c.reasons()
}

// word is the document's word for an outcome.
func word(o outcome) string {
	switch o {
	case passed:
		return "pass"
	case failed:
		return "fail"
	case skipped:
		return "skip"
	default:
		return "–"
	}
}

// reasons are the suite's reasons for skipped specs, once each.
func (c comparison) reasons() string {
	found := map[string]bool{}
	for _, r := range c.reports {
		for _, s := range r.specs {
			if s.outcome == skipped {
				found[fmt.Sprintf("- skipped with %s: %s\n", r.handler, s.reason)] = true
			}
		}
	}
	for name, reason := range c.exceptions {
		handler, _, _ := strings.Cut(name, " ")
		if slices.ContainsFunc(c.reports, func(r report) bool { return r.handler == handler }) {
			found[fmt.Sprintf("- not demanded: %s: %s\n", name, reason)] = true
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "\n" + strings.Join(slices.Sorted(maps.Keys(found)), "")
}
