package seccomp

import (
	"errors"
	"slices"
)

// rule is an action for one system call, if all its conditions hold.
type rule struct {
	conditions []condition // at most one for each argument, in their order
	tests      []test      // what they come to, for the rule's place among others
	action     uint32
}

// call is what a filter does about one system call: the action of the first
// rule that holds, else the filter's default.
type call struct {
	rules []rule
	wide  bool // arguments have 64 bits
}

// unconditional returns the action that the call has whatever its arguments.
func (c *call) unconditional() (uint32, bool) {
	if len(c.rules) == 1 && len(c.rules[0].conditions) == 0 {
		return c.rules[0].action, true
	}
	return 0, false
}

// errConflict says that two rules of a profile ask for different actions under
// the same conditions. libseccomp refuses such profiles (EEXIST), so that no
// container runs with half of what its profile says.
var errConflict = errors.New("two rules give different actions for the same arguments")

// filter is what the profile means on one architecture.
type filter struct {
	arch  architecture
	calls map[uint32]*call
	// highest is the greatest number that the profile names, rules that repeat
	// the default action included; 0 if it names none.
	highest uint32
}

func newFilter(a architecture) *filter {
	return &filter{arch: a, calls: make(map[uint32]*call)}
}

// add adds a rule for a system call as libseccomp does: a rule without
// conditions outdoes all others, the first of several of them stays, and a rule
// is dropped where one with fewer conditions came before it.
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

// relation is what a new rule is to an older one of the same call.
type relation int

const (
	apart       relation = iota
	covered              // it never decides: the old one holds whenever it does
	conflicting          // it would decide differently under the same or fewer conditions
)

// against relates a new rule to an older one. It looks at the conditions, not at
// the values for which they hold: rules that overlap in other ways are apart.
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

// covers reports whether a rule of the same action holds whenever another does,
// because its conditions follow each other among the other's.
func (r rule) covers(other rule) bool {
	for at := range len(other.conditions) - len(r.conditions) + 1 {
		if r.action == other.action && slices.Equal(other.conditions[at:at+len(r.conditions)], r.conditions) {
			return true
		}
	}
	return false
}

// effective returns what is left of conditions on this architecture: cut to its
// width, without those that always hold.
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
