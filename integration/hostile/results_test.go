package hostile

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync"
)

// result is what one mode of an attack came to in one column.
type result struct {
	Classes, Attack, Mode, Column string
	Tries, Wins, Refused          int
	Loot                          []string // what was got, but for what differs from try to try
	Refusal                       string   // the first
	NotTried                      string   // why
	Reason                        string   // why it may win
	Proofs                        []string
	Unproved                      string
	order                         int // the mode's place
}

// results are those of all modes and columns.
type results struct {
	mu  sync.Mutex
	all []*result
	// places are given out already.
	places int
}

// place gives modes their places in the document: in the order of the tests, whichever
// ends first.
func (r *results) place(modes []mode) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range modes {
		modes[i].order = r.places
		r.places++
	}
}

// found is what the tests of this run have found.
var found results

func (r *results) add(one *result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

func (r *results) write(file string) error {
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
