package stage1

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/rkt/containerd-shim-rkt-v1/pod/spec"
)

// Limits of the text about the unknown fields of one document.
const (
	maxUnknown     = 16 // number of fields that are named
	maxUnknownName = 64 // bytes of each word of a pointer that are shown
	maxRefused     = 64 // fields that a Verdict names
)

// checker walks a document.
type checker struct {
	path    [][]byte // of the current field
	all     bool     // go on after the first field that is refused
	refused []string // pointers; the first maxRefused
	unknown []string // the first maxUnknown
	more    int      // unknown fields
}

// undeclared notes the outermost fields, from a field down, that ask for something that is
// not declared, and the unknown fields on its way. It reports whether the walk ends.
func (c *checker) undeclared(f spec.Field, declared position) bool {
	if len(declared.nodes) == 0 && !declared.covered && f.Asks() {
		return c.refuse()
	}
	if declared.covered && !f.MayHaveUnknown() {
		return false
	}
	empty := true
	for m := f.Members(); m.Next(); {
		empty = false
		inner, name, known := f.Member(&m)
		below := declared.below(name)
		c.path = append(c.path, m.Name())
		switch {
		case known && !bytes.Equal(name, m.Name()), !known && len(below.nodes) == 0:
			c.note(f, m.Value)
		}
		if (known || len(below.nodes) > 0) && c.undeclared(inner, below) {
			return true
		}
		c.path = c.path[:len(c.path)-1]
	}
	return empty && !declared.covered && f.Asks() && c.refuse()
}

// refuse notes the current field, and reports whether the walk ends.
func (c *checker) refuse() bool {
	if len(c.refused) < maxRefused {
		c.refused = append(c.refused, c.pointer())
	}
	return !c.all
}

// note adds a member of f to the unknown fields, unless it is null.
func (c *checker) note(f spec.Field, v spec.Value) {
	switch {
	case string(v.Raw()) == "null":
		return
	case len(c.unknown) == maxUnknown:
		c.more++
		return
	}
	text := c.pointer()
	if meant := f.Meant(string(c.path[len(c.path)-1])); meant != "" {
		text += fmt.Sprintf(" (is %s meant?)", meant)
	}
	c.unknown = append(c.unknown, text)
}

// list returns the unknown fields.
func (c *checker) list() []string {
	if c.more == 0 {
		return c.unknown
	}
	return append(c.unknown, fmt.Sprintf("and %d more", c.more))
}

// pointer returns the JSON pointer to the current field, on one line. It shortens long
// words, because clients choose them.
func (c *checker) pointer() string {
	var b strings.Builder
	for _, word := range c.path {
		cut := ""
		if len(word) > maxUnknownName {
			word, cut = word[:maxUnknownName], "…"
		}
		text := strings.NewReplacer("~", "~0", "/", "~1").Replace(string(word))
		quoted := strconv.Quote(text)
		b.WriteString("/" + quoted[1:len(quoted)-1] + cut)
	}
	return b.String()
}
