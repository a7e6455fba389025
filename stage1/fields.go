package stage1

import (
	"cmp"
	"strings"
)

// fields is a set of JSON pointers as a tree. nil is the empty set.
type fields struct {
	covered bool // the value here and all below it
	next    map[string]*fields
	any     *fields // the node of * in a pointer
}

// newFields makes the set of all pointers in the lists.
func newFields(lists ...[]string) *fields {
	root := &fields{}
	for _, list := range lists {
		for _, pointer := range list {
			f := root
			for _, word := range strings.Split(pointer[1:], "/") {
				f = f.child(word)
			}
			f.covered = true
		}
	}
	return root
}

// child returns the node of a word of a pointer. If there is none yet, it makes
// one.
func (f *fields) child(word string) *fields {
	if word == "*" {
		if f.any == nil {
			f.any = &fields{}
		}
		return f.any
	}
	if f.next == nil {
		f.next = map[string]*fields{}
	}
	key := strings.ReplaceAll(strings.ReplaceAll(word, "~1", "/"), "~0", "~")
	if f.next[key] == nil {
		f.next[key] = &fields{}
	}
	return f.next[key]
}

// MayIgnore reports whether a field is excused.
func (s *Stage1) MayIgnore(pointer string) bool {
	f := s.excused
	for _, word := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if f == nil || f.covered {
			break
		}
		next := f.next[word]
		if word == "*" {
			next = f.any
		}
		f = cmp.Or(next, f.any)
	}
	return f != nil && f.covered
}
