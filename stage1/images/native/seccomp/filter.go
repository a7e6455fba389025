package seccomp

import (
	"errors"
	"slices"
)

// rule is an action for one system call, if all its conditions hold.
type rule struct {
	conditions []condition // at most one for each argument, in their order
	tests      []test      // the tests of the conditions, which decide the rule's place among others
	action     uint32
}

// call is the part of a filter for one system call. The action is that of the
// first rule that holds, else the filter's default.
type call struct {
	rules []rule
	wide  bool // arguments have 64 bits
}

// unconditional returns the action of a call if it is the same for all
// arguments.
func (c *call) unconditional() (uint32, bool) {
	if len(c.rules) == 1 && len(c.rules[0].conditions) == 0 {
		return c.rules[0].action, true
	}
	return 0, false
}

// errConflict says that two rules of a profile have different actions for the
// same conditions. libseccomp refuses such profiles (EEXIST), too: otherwise a
// container would run with only one of the two rules.
var errConflict = errors.New("two rules give different actions for the same arguments")

// filter is a profile for one architecture.
type filter struct {
	arch  architecture
	calls map[uint32]*call
	// highest is the greatest number that the profile names, including numbers
	// of rules that repeat the default action. It is 0 if the profile names
	// none.
	highest uint32
}

func newFilter(a architecture) *filter {
	return &filter{arch: a, calls: make(map[uint32]*call)}
}

// add adds a rule for a system call as libseccomp does. A rule without
// conditions replaces all others, and the first of several such rules stays. A
// rule is dropped if an earlier one with fewer conditions covers it.
func (f *filter) add(number uint32, r rule) error {
	c := f.calls[number]
	if c == nil {
		c = &call{wide: f.arch.wide}
		f.calls[number] = c
	}
	if _, ok := c.unconditional(); ok {
		return nil
	}
	r.conditions = f.effective(r.conditions)
	if len(r.conditions) == 0 {
		c.rules = []rule{r}
		return nil
	}
	for _, old := range c.rules {
		switch r.against(old) {
		case covered:
			return nil
		case conflicting:
			return errConflict
		}
	}
	c.rules = slices.DeleteFunc(c.rules, r.covers)
	for _, condition := range r.conditions {
		r.tests = append(r.tests, condition.tests(c.wide)...)
	}
	c.rules = slices.Insert(c.rules, place(c.rules, r), r)
	return nil
}

// relation is the relation of a new rule to an older rule for the same call.
type relation int

const (
	apart       relation = iota
	covered              // the new rule never decides, because the old one holds in all its cases
	conflicting          // the new rule would decide differently under the same or fewer conditions
)

// against relates a new rule to an older one. It compares only the conditions,
// not the values for which they hold. Rules that overlap in another way count as
// apart.
func (r rule) against(old rule) relation {
	shared := min(len(r.conditions), len(old.conditions))
	alike := slices.Equal(r.conditions[:shared], old.conditions[:shared])
	switch {
	case old.covers(r), alike && len(r.conditions) > shared:
		return covered
	case alike && r.action != old.action:
		return conflicting
	}
	return apart
}

// covers reports whether a rule holds in all cases of another rule with the same
// action, because its conditions are a contiguous part of the other's.
func (r rule) covers(other rule) bool {
	for at := range len(other.conditions) - len(r.conditions) + 1 {
		if r.action == other.action && slices.Equal(other.conditions[at:at+len(r.conditions)], r.conditions) {
			return true
		}
	}
	return false
}

// effective returns the conditions for this architecture: reduced to its width,
// without conditions that always hold.
func (f *filter) effective(conditions []condition) []condition {
	var left []condition
	for _, c := range conditions {
		if !f.arch.wide {
			c = c.narrow()
		}
		if c.mask != 0 {
			left = append(left, c)
		}
	}
	return left
}
