package hostile

import (
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
	// Seconds is how long a race was tried at most.
	Seconds int
}

// results are in the order in which the tests ended.
type results struct {
	mu  sync.Mutex
	all []*result
}

// found is what the tests of this run have found.
var found results

func (r *results) add(one *result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, one)
}

func (r *results) write(file string) error {
	b, err := json.MarshalIndent(r.all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// merge returns the results of earlier runs, each replaced by that of a later one where
// the same was tried again.
func merge(earlier, later []*result) []*result {
	again := map[[3]string]bool{}
	for _, r := range later {
		again[r.place()] = true
	}
	kept := slices.DeleteFunc(earlier, func(r *result) bool { return again[r.place()] })
	return append(kept, later...)
}

// place is where a result is in the document.
func (r *result) place() [3]string { return [3]string{r.Classes + ": " + r.Attack, r.Mode, r.Column} }

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
