package hostile

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync"
)

// result is the result of a mode of an attack in a column.
type result struct {
	Classes, Attack, Mode, Column string
	Tries, Wins, Refused          int
	Loot                          []string          // without the parts that differ from try to try
	Refusal                       string            // the first error
	Holes                         map[string]string // verdicts of a mode that is compared
	NotTried                      string            // the reason
	Reason                        string            // the reason why it may succeed
	Proofs                        []string
	Unproved                      string
	Missing                       bool // the mode was not run
	order                         int  // the mode's place
}

// results are the results of all modes and columns.
type results struct {
	mu  sync.Mutex
	all []*result
	// places is the number of places that were assigned.
	places int
	// placed are all modes of the attacks that were begun.
	placed []*result
}

// place assigns the modes of an attack their places in the document. They are in the order of the tests, not in
// the order in which the tests end.
func (r *results) place(a attack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range a.modes {
		a.modes[i].order = r.places
		r.places++
		r.placed = append(r.placed, &result{Classes: a.classes, Attack: a.name, Mode: a.modes[i].name})
	}
}

// found has the results of this run.
var found results

func (r *results) add(one *result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

func (r *results) write(file string) error {
	for _, p := range r.placed {
		if !slices.ContainsFunc(r.all, func(one *result) bool { return one.key() == p.key() }) {
			p.Missing = true
			r.all = append(r.all, p)
		}
	}
	slices.SortStableFunc(r.all, func(a, b *result) int { return cmp.Compare(a.order, b.order) })
	b, err := json.MarshalIndent(r.all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func readResults(file string) (all []*result, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(b, &all)
}

func envNumber(name string, otherwise int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil || n < 1 {
		return otherwise
	}
	return n
}
