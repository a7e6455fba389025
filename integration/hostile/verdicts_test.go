package hostile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/integration/cri/document"
	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// tally counts the verdicts on one way out, over all situations, stages and sets of namespaces.
type tally struct {
	tried, open int
	wins        bool // it is open somewhere where runc's is closed
}

// verdicts returns a table with a row for each way that is open anywhere. The results are those of one attack.
func (p page) verdicts(all []*result) string {
	columns := map[string]map[string]*tally{}
	ways := map[string]bool{}
	situations := map[string]map[string]bool{}
	for _, r := range all {
		if !slices.Contains(p.shown, r.Column) || r.Holes == nil {
			continue
		}
		if columns[r.Column] == nil {
			columns[r.Column], situations[r.Column] = map[string]*tally{}, map[string]bool{}
		}
		situations[r.Column][r.Mode] = true
		r.count(columns[r.Column])
		for way, t := range columns[r.Column] {
			ways[way] = ways[way] || t.open > 0
		}
	}
	rows := [][]string{append([]string{"way"}, p.shown...)}
	var closed []string
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		if !ways[way] {
			closed = append(closed, way)
			continue
		}
		row := []string{way}
		for _, column := range p.shown {
			row = append(row, columns[column][way].cell())
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	b.WriteString("A cell is in how many of the containers, processes and sets of namespaces in which it was tried a way is open. A way that is open " +
		"where runc's is closed is printed in bold, and fails the test. Situations: ")
	for i, column := range p.shown {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d of `%s`", len(situations[column]), column)
	}
	fmt.Fprintf(&b, ".\n\n%s\nClosed everywhere: %s.\n\n", document.Table(rows), strings.Join(closed, "; "))
	return b.String()
}

// count adds the verdicts of a result.
func (r *result) count(to map[string]*tally) {
	for name, verdict := range r.Holes {
		_, way, _ := strings.Cut(name, ": ")
		for _, prefix := range []string{"as administrator, ", "in a user namespace, "} {
			way = strings.TrimPrefix(way, prefix)
		}
		t := to[way]
		if t == nil {
			t = &tally{}
			to[way] = t
		}
		t.tried++
		if verdict == loot.Open {
			t.open++
		}
		t.wins = t.wins || slices.Contains(r.Loot, name)
	}
}

func (t *tally) cell() string {
	if t == nil {
		return "–"
	}
	text := fmt.Sprintf("%d of %d", t.open, t.tried)
	if t.wins {
		return "**" + text + "**"
	}
	return text
}
