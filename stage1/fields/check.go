package fields

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
	maxUncovered   = 64 // fields that All finds
)

// Found are fields of a document, as JSON pointers.
type Found struct {
	// Uncovered are the outermost fields that ask for something and that the set does not
	// cover. Parts of such a field are not among them.
	Uncovered []string
	// Unknown are texts about fields that no known version of the OCI specification has and
	// that the set does not cover, with the field that was probably meant.
	Unknown []string
}

// First finds the first uncovered field from f down, and the unknown fields before it. place
// is the path of f in the document.
func (s *Set) First(f spec.Field, place ...string) Found { return s.find(false, f, place) }

// All finds all of them, from f down.
func (s *Set) All(f spec.Field, place ...string) Found { return s.find(true, f, place) }

func (s *Set) find(all bool, f spec.Field, place []string) Found {
	c := checker{all: all}
	covering := position{nodes: []*Set{s}}
	for _, word := range place {
		covering = covering.below([]byte(word))
		c.path = append(c.path, []byte(word))
	}
	c.walk(f, covering)
	return Found{Uncovered: c.uncovered, Unknown: c.list()}
}

// checker walks a document.
type checker struct {
	path      [][]byte // of the current field
	all       bool     // go on after the first uncovered field
	uncovered []string // pointers; the first maxUncovered
	unknown   []string // the first maxUnknown
	more      int      // unknown fields
}

// position is a place in a set: the nodes that the path to a field matches. There are two nodes
// if both a * and a name match.
type position struct {
	nodes   []*Set
	covered bool // a node here or above covers everything below it
}

// below returns the position one step further down.
func (p position) below(key []byte) position {
	down := position{covered: p.covered}
	for _, n := range p.nodes {
		for _, m := range [...]*Set{n.next[string(key)], n.any} {
			if m != nil {
				down.nodes = append(down.nodes, m)
				down.covered = down.covered || m.covered
			}
		}
	}
	return down
}

// walk notes the outermost uncovered fields, from a field down, and the unknown fields on its
// way. at is the place of the field in the set. walk reports whether it ends.
func (c *checker) walk(f spec.Field, at position) bool {
	if len(at.nodes) == 0 && !at.covered && f.Asks() {
		return c.note()
	}
	if at.covered && !f.MayHaveUnknown() {
		return false
	}
	empty := true
	for m := f.Members(); m.Next(); {
		empty = false
		inner, name, known := f.Member(&m)
		below := at.below(name)
		c.path = append(c.path, m.Name())
		switch {
		case known && !bytes.Equal(name, m.Name()), !known && len(below.nodes) == 0:
			c.noteUnknown(f, m.Value)
		}
		if (known || len(below.nodes) > 0) && c.walk(inner, below) {
			return true
		}
		c.path = c.path[:len(c.path)-1]
	}
	return empty && !at.covered && f.Asks() && c.note()
}

// note notes the current field as uncovered, and reports whether the walk ends.
func (c *checker) note() bool {
	if len(c.uncovered) < maxUncovered {
		c.uncovered = append(c.uncovered, c.pointer())
	}
	return !c.all
}

// noteUnknown adds a member of f to the unknown fields, unless it is null.
func (c *checker) noteUnknown(f spec.Field, v spec.Value) {
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
