package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
)

// page is docs/results/oci.md.
type page struct {
	tools, runc string // versions
	reports     []report
}

func (p page) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, `# The OCI runtime specification, by runtime-tools

<!-- Written by make test-oci. Do not edit: the next run overwrites it. -->

The validation programs of opencontainers/runtime-tools %s, unmodified. They execute an
OCI runtime's command line. The column `+"`runc`"+` is that of runc %s. The others are
shims, behind a client that has a runtime's command line and works through containerd:
`+"`runc-shim`"+` is runc's shim with the same runc, the rest are stage1s of this repository, of
which `+"`oci`"+` executes the same runc. runtime-tools is of 2019: it tests version 1.0 of the
specification, with cgroups of version 1.

A cell is `+"`pass`"+`, or the number of checks that pass and that fail, and how the
program ended if that was not with code 0. Skipped checks are not counted. The command
fails if a program that is not in the list of deviations does not pass, if one of the
list passes, and if another check fails than those of its entry.

%s
## Deviations

Why programs do not pass. Where there is an asterisk, the reason is the machine, which is a
container, or timing, and the program may also pass.

%s`, p.tools, p.runc, p.programs(), p.deviations())
	return b.String()
}

func (p page) programs() string {
	head, sums := []string{"program"}, []string{""}
	for _, r := range p.reports {
		head = append(head, r.column)
		sums = append(sums, fmt.Sprintf("%d of %d pass", r.passed(), len(r.results)))
	}
	rows := [][]string{head, sums}
	for _, name := range slices.Sorted(maps.Keys(p.reports[0].results)) {
		row := []string{name}
		for _, r := range p.reports {
			row = append(row, r.results[name].String())
		}
		rows = append(rows, row)
	}
	return document.Table(rows)
}

func (p page) deviations() string {
	rows := [][]string{{"program", "with", "reason"}}
	list := deviations()
	slices.SortStableFunc(list, func(a, b deviation) int { return strings.Compare(a.program, b.program) })
	for _, d := range list {
		with := strings.Join(d.columns, ", ")
		if len(d.columns) == len(known()) {
			with = "all"
		}
		name := d.program
		if d.varies {
			name += ` \*`
		}
		rows = append(rows, []string{name, with, d.reason})
	}
	return document.Table(rows)
}
