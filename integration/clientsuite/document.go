package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/rpcs"
)

// document is docs/results/parity.md, or parity-kvm.md.
type document struct {
	containerd, runc string // versions
	cgroups          string // v1 or v2
	comparison       comparison
	columns          []run
}

func (d document) String() string {
	var b strings.Builder
	ours := d.columns[1].column
	of, target, emulated := "", "test-client", ""
	if ours.ofMachines() {
		of, target, emulated = "of machines ", "test-kvm-client", ", whose machines QEMU emulates (TCG)"
	}
	fmt.Fprintf(&b, `# Parity %swith runc's shim

<!-- Written by make %s. Do not edit: the next run overwrites it. -->

containerd's own client suite, `+"`integration/client`"+` of containerd %s, run twice on
one host with cgroups %s: with io.containerd.runc.v2 and runc %s, and with
%s and the stage1 `+"`%s`"+`%s. In neither run are the other's
programs there. The command fails if a test that passes with runc does not pass
with %s, unless `+"`integration/clientsuite/exceptions.go`"+` says why it should not, and
if a test of that list does pass.

%s
## Test by test

Sub-tests are listed where they do not pass in both columns.

%s`, of, target, d.containerd, d.cgroups, d.runc, ours.runtime, ours.stage1, emulated, ours.name, d.summary(), d.tests())
	if calls := d.rpcs(); calls != "" {
		fmt.Fprintf(&b, `
## What the suite called

What clients called in containerd's Tasks service during the two runs, and the
codes of the answers: an error is an answer that a test provokes, or that
containerd's client expects. What tests called that are skipped with our shim is in
runc's column only. Calls in flight when a test killed containerd are in neither.

%s`, calls)
	}
	if answers := d.answers(); answers != "" {
		fmt.Fprintf(&b, `
## RPC by RPC

Every RPC of the Task service, put to the shims themselves for a task and for an
exec in every state: the code of the answer, and the state that follows. `+"`make test`"+`
holds each stage1's answers to these.

%s`, answers)
	}
	return b.String()
}

func (d document) summary() string {
	rows := [][]string{{"", "pass", "fail", "skip"}}
	for _, c := range d.columns {
		n := c.results.count()
		rows = append(rows, []string{c.column.name, fmt.Sprint(n[passed]), fmt.Sprint(n[failed]), fmt.Sprint(n[skipped])})
	}
	return markdown(rows)
}

func (d document) tests() string {
	rows := [][]string{{"test", "runc", d.columns[1].column.name, "reason"}}
	for _, r := range d.comparison.rows {
		name := r.test
		if i := strings.IndexByte(name, '/'); i >= 0 {
			name = "…" + name[i:]
		}
		rows = append(rows, []string{name, cell(r.runc), cell(r.ours), strings.ReplaceAll(r.reason, "|", `\|`)})
	}
	return markdown(rows)
}

func cell(o outcome) string {
	if o == "" {
		return "–"
	}
	return string(o)
}

func (d document) rpcs() string {
	methods := map[string]bool{}
	head := []string{"RPC"}
	for _, c := range d.columns {
		head = append(head, c.column.name)
		for m := range c.calls {
			methods[m] = true
		}
	}
	if len(methods) == 0 {
		return ""
	}
	rows := [][]string{head}
	for _, m := range slices.Sorted(maps.Keys(methods)) {
		cells := []string{m}
		for _, c := range d.columns {
			cells = append(cells, codeList(c.calls[m]))
		}
		rows = append(rows, cells)
	}
	return markdown(rows)
}

// answers renders the table of package rpcs.
func (d document) answers() string {
	rows := [][]string{{"RPC", "of", "that is", "runc", "rkt", "reason"}}
	for _, q := range rpcs.Questions() {
		of := "a task"
		if q.Exec {
			of = "an exec"
		}
		runc, asked := d.columns[0].answers[q]
		rkt, answered := d.columns[1].answers[q]
		if asked && answered {
			rows = append(rows, []string{q.Call, of, q.State, runc.String(), rkt.String(), q.Reason(runc, rkt)})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return markdown(rows)
}

// codeList lists codes, the most frequent one first.
func codeList(codes map[string]int) string {
	sorted := slices.Sorted(maps.Keys(codes))
	if i := slices.Index(sorted, "OK"); i > 0 {
		sorted = slices.Insert(slices.Delete(sorted, i, i+1), 0, "OK")
	}
	return strings.Join(sorted, ", ")
}

// markdown renders a table whose first row is its head.
func markdown(rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	line(rows[0])
	line(slices.Repeat([]string{"---"}, len(rows[0])))
	for _, r := range rows[1:] {
		line(r)
	}
	return b.String()
}
