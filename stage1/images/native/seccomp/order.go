package seccomp

import (
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// If rules of one system call overlap and have different actions, the rule that is
// tried first decides. Neither the runtime spec nor libseccomp's documentation
// specifies the order, so this package uses libseccomp's actual order. libseccomp
// keeps the rules of a call as a tree of tests, each of one word of an argument.
// Rules that begin with the same tests share them. On each level of the tree, the
// tests are sorted by the method test.before. Tests that are equal by it stay in
// the profile's order.

// test is the comparison of one 32-bit word of an argument.
type test struct {
	word        uint // 2*argument, and one more for the high word
	code        uint16
	masked      bool
	mask, datum uint32
	class       int // of the condition to which the test belongs
}

// The classes of conditions, in the order in which they are tried.
const (
	classEqual = iota
	classUpper
	classLower
)

// tests returns a condition's tests: of the high word, if arguments have one, and
// of the low word.
func (c condition) tests(wide bool) []test {
	code, _ := word(c.op)
	low := test{2 * c.arg, code, c.op == specs.OpMaskedEqual, uint32(c.mask), uint32(c.datum), c.class()}
	if !wide {
		return []test{low}
	}
	high := low
	high.word++
	high.mask, high.datum = uint32(c.mask>>32), uint32(c.datum>>32)
	if code != opEQ {
		high.code = opGT
	}
	return []test{high, low}
}

func (c condition) class() int {
	switch c.op {
	case specs.OpLessThan, specs.OpLessEqual:
		return classUpper
	case specs.OpGreaterThan, specs.OpGreaterEqual:
		return classLower
	}
	return classEqual
}

// before reports whether t is tried before u on the same level. Higher words come
// first. For the same word, tests for equality come first, then upper bounds, then
// lower bounds. Of two upper bounds the smaller one comes first; in the other two
// classes the greater value comes first.
func (t test) before(u test) bool {
	switch {
	case t.word != u.word:
		return t.word > u.word
	case t.class != u.class:
		return t.class < u.class
	case t.class == classUpper:
		return t.datum < u.datum
	}
	return t.datum > u.datum
}

// place returns the index of a new rule among the rules of its system call. The
// rules are in the order of the leaves of the tree, so rules that share their
// first tests are neighbours.
func place(rules []rule, r rule) int {
	first, end := 0, len(rules) // of the rules that share the tests up to depth
	for depth, t := range r.tests {
		shares := func(old rule) bool { return len(old.tests) > depth && old.tests[depth] == t }
		for first < end && !shares(rules[first]) {
			if len(rules[first].tests) > depth && t.before(rules[first].tests[depth]) {
				return first
			}
			first++
		}
		if n := slices.IndexFunc(rules[first:end], func(old rule) bool { return !shares(old) }); n >= 0 {
			end = first + n
		}
	}
	return end
}
