package config

import (
	"cmp"
	"fmt"
	"strings"
)

// Problem is one error in a file.
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

// Compare orders problems by file and place.
func (p Problem) Compare(q Problem) int {
	return cmp.Or(strings.Compare(p.File, q.File), cmp.Compare(p.Line, q.Line), cmp.Compare(p.Column, q.Column))
}

// Problem returns a problem of a key, such as stage1.fly.path, with the place where the key
// was set.
func (c *Config) Problem(key, format string, args ...any) Problem {
	at, ok := c.places[key]
	if !ok {
		at.file = cmp.Or(c.file, File)
	}
	return Problem{File: at.file, Line: at.line, Column: at.column, Text: key + ": " + fmt.Sprintf(format, args...)}
}

// Problems are all errors in a configuration, in the order of the files and their lines.
type Problems []Problem

// Error returns the first problem, because Kubernetes shows it in an event of a pod.
func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	return fmt.Sprintf("%s (and %d more)", p[0].Error(), len(p)-1)
}
