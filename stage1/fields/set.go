package fields

import (
	"cmp"
	"strings"
)

// Set is a set of JSON pointers, as a tree. A * in a pointer stands for any word, and a pointer
// covers everything below it. nil is the empty set.
type Set struct {
	covered bool // the value here and all below it
	next    map[string]*Set
	any     *Set // the node of * in a pointer
}

// NewSet makes the set of all pointers in the lists.
func NewSet(lists ...[]string) *Set {
	root := &Set{}
	for _, list := range lists {
		for _, pointer := range list {
			s := root
			for _, word := range strings.Split(pointer[1:], "/") {
				s = s.child(word)
			}
			s.covered = true
		}
	}
	return root
}

// child returns the node of a word of a pointer. If there is none yet, it makes
// one.
func (s *Set) child(word string) *Set {
	if word == "*" {
		if s.any == nil {
			s.any = &Set{}
		}
		return s.any
	}
	if s.next == nil {
		s.next = map[string]*Set{}
	}
	key := strings.ReplaceAll(strings.ReplaceAll(word, "~1", "/"), "~0", "~")
	if s.next[key] == nil {
		s.next[key] = &Set{}
	}
	return s.next[key]
}

// Has reports whether the set covers a field. pointer is the JSON pointer of the field, in
// which a * stands for itself.
func (s *Set) Has(pointer string) bool {
	for _, word := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if s == nil || s.covered {
			break
		}
		next := s.next[word]
		if word == "*" {
			next = s.any
		}
		s = cmp.Or(next, s.any)
	}
	return s != nil && s.covered
}
