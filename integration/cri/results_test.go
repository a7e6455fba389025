package cri

import (
	"encoding/json"
	"os"
)

// result is a cell of the document.
type result struct {
	Section, Feature, Column string
	Outcome                  string
	Reason                   string
}

// results are in the order of the document.
type results []result

func (r *results) add(section, feature, column, outcome, reason string) {
	*r = append(*r, result{section, feature, column, outcome, reason})
}

func (r results) write(file string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

func readResults(file string) (r results, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(b, &r)
}
