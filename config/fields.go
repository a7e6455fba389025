package config

import (
	"fmt"
	"slices"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// UnknownFields returns a problem for every JSON pointer in a list of accepted fields that
// leads to no field of the runtime spec. Such a pointer does not fail pods, because the
// spec of a newer containerd may have fields that this release does not know.
func (c *Config) UnknownFields() Problems {
	var all Problems
	for _, p := range c.pointers {
		if !isPointer(p.text) {
			continue
		}
		if miss := spec.Follow(p.text); miss != nil {
			all = append(all, Problem{p.at.file, p.at.line, p.at.column, fmt.Sprintf("%s: %q leads to no field of config.json: %s", p.key, p.text, miss.Why)})
		}
	}
	slices.SortStableFunc(all, Problem.Compare)
	return all
}
