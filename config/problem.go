package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	File         string
	Line, Column int // from 1; 0 if it has no place
	Text         string
}

func (p Problem) Error() string {
	if p.Line == 0 {
		return fmt.Sprintf("%s: %s", p.File, p.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Text)
}

func (p Problem) compare(q Problem) int {
	return cmp.Or(strings.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// Problems are all that is wrong in a configuration, in the order of the files
// and of the lines in them.
type Problems []Problem

// Error returns the first one: it ends up in the event of a pod.
func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	return fmt.Sprintf("%s (and %d more)", p[0].Error(), len(p)-1)
}
