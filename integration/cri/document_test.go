package cri

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
	"github.com/rkt/containerd-shim-rkt-v1/integration/enclosure"
)

// writeDocument writes the results into the document that RKT_TEST_DOCUMENT names.
func writeDocument(ctx context.Context, e enclosure.Enclosure) error {
	to := os.Getenv("RKT_TEST_DOCUMENT")
	if to == "" {
		return nil
	}
	r, err := readResults(e.Path(resultsFile))
	if err != nil {
		return err
	}
	if want := len(columns()) * count(sections()); len(r) != want {
		fmt.Printf("%d cells of %d: the document stays as it is\n", len(r), want)
		return nil
	}
	runc, err := exec.CommandContext(ctx, "runc", "--version").Output()
	if err != nil {
		return fmt.Errorf("runc --version: %w", err)
	}
	first, _, _ := strings.Cut(string(runc), "\n")
	version := "v1"
	if unified() {
		version = "v2"
	}
	intro := fmt.Sprintf("With containerd 2.4, cgroups %s and runc %s.\n\n", version, strings.TrimPrefix(first, "runc version "))
	return document.Replace(to, "features", intro+r.table())
}

func count(all []section) (n int) {
	for _, s := range all {
		n += len(s.features)
	}
	return n
}

// headings are how the document calls the handlers.
var headings = map[string]string{
	"runc":     "runc",
	"rkt":      "rkt, `podsandbox`",
	"rkt-shim": "rkt, `shim`",
}

// table has a row per feature and a column per handler, and below it the reasons of
// what is not simply there.
func (r results) table() string {
	var names []string
	for _, h := range columns() {
		names = append(names, h.Name)
	}
	head := []string{"feature"}
	for _, n := range names {
		head = append(head, headings[n])
	}
	rows := [][]string{head}
	var notes []string
	section := ""
	for i := 0; i < len(r); {
		j := i
		for j < len(r) && r[j].Section == r[i].Section && r[j].Feature == r[i].Feature {
			j++
		}
		if r[i].Section != section {
			section = r[i].Section
			rows = append(rows, append([]string{"**" + section + "**"}, slices.Repeat([]string{""}, len(names))...))
		}
		rows = append(rows, r[i:j].row(names, &notes))
		i = j
	}
	text := document.Table(rows)
	for i, n := range notes {
		text += fmt.Sprintf("\n%d. %s", i+1, n)
	}
	return text
}

// row is that of one feature. Reasons become notes.
func (r results) row(names []string, notes *[]string) []string {
	cells := []string{r[0].Feature}
	for _, n := range names {
		i := slices.IndexFunc(r, func(one result) bool { return one.Handler == n })
		if i < 0 {
			cells = append(cells, "")
			continue
		}
		cell := r[i].Outcome
		if r[i].Reason != "" {
			note := slices.Index(*notes, r[i].Reason)
			if note < 0 {
				note = len(*notes)
				*notes = append(*notes, r[i].Reason)
			}
			cell += fmt.Sprintf(" (%d)", note+1)
		}
		cells = append(cells, cell)
	}
	return cells
}
