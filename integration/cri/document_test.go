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
	if want := len(suiteColumns) * count(sections()); len(r) != want {
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

// headings are the document's names of the columns.
var headings = map[string]string{
	"runc":        "runc",
	"rkt":         "rkt, `podsandbox`",
	"rkt-shim":    "rkt, `shim`",
	"oci":         "rkt-oci, `podsandbox`",
	"oci-shim":    "rkt-oci, `shim`",
	"nspawn":      "rkt-nspawn, `podsandbox`",
	"nspawn-shim": "rkt-nspawn, `shim`",
}

// table has a row per feature and one column per handler. Notes below it have the reasons of
// cells that are not a plain yes.
func (r results) table() string {
	head := []string{"feature"}
	for _, c := range suiteColumns {
		head = append(head, headings[c.name])
	}
	rows := [][]string{head}
	var notes []string
	for _, s := range sections() {
		rows = append(rows, append([]string{"**" + s.name + "**"}, slices.Repeat([]string{""}, len(suiteColumns))...))
		for _, f := range s.features {
			row := []string{f.name}
			for _, c := range suiteColumns {
				row = append(row, r.cell(s.name, f.name, c.name, &notes))
			}
			rows = append(rows, row)
		}
	}
	text := document.Table(rows)
	for i, n := range notes {
		text += fmt.Sprintf("\n%d. %s", i+1, n)
	}
	return text
}

// cell returns the cell of a feature in a column. A reason becomes a note.
func (r results) cell(section, feature, column string, notes *[]string) string {
	i := slices.IndexFunc(r, func(one result) bool {
		return one.Section == section && one.Feature == feature && one.Column == column
	})
	if i < 0 {
		return ""
	}
	if r[i].Reason == "" {
		return r[i].Outcome
	}
	note := slices.Index(*notes, r[i].Reason)
	if note < 0 {
		note = len(*notes)
		*notes = append(*notes, r[i].Reason)
	}
	return fmt.Sprintf("%s (%d)", r[i].Outcome, note+1)
}
