package seccomp

import (
	"errors"
	"slices"
)

// rule is an action for one system call, if all its conditions hold.
type rule struct {
	conditions []condition // at most one for each argument, in their order
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
	c.rules = slices.DeleteFunc(c.rules, func(old rule) bool { return old.against(r) == covered })
	place := slices.IndexFunc(c.rules, func(old rule) bool { return before(r, old) })
	if place < 0 {
		place = len(c.rules)
	}
	c.rules = slices.Insert(c.rules, place, r)
	return nil
}

// relation is what a new rule is to an older one of the same call.
type relation int

const (
	apart       relation = iota
	covered              // it never decides: the old one holds whenever it does
	conflicting          // it would decide differently under the same or fewer conditions
)

// against relates a new rule to an older one. Only rules of which one begins
// with all the conditions of the other are related, however much others overlap.
func (r rule) against(old rule) relation {
	shared := min(len(r.conditions), len(old.conditions))
	switch {
	case !slices.Equal(r.conditions[:shared], old.conditions[:shared]):
		return apart
	case len(r.conditions) > shared || len(old.conditions) == shared && r.action == old.action:
		return covered
	case r.action != old.action:
		return conflicting
	}
	return apart
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

// before tells whether rule r is tried before rule old of the same call.
func before(r, old rule) bool {
	for i := range min(len(r.conditions), len(old.conditions)) {
		if n := r.conditions[i].order(old.conditions[i]); n != 0 {
			return n < 0
		}
		if r.conditions[i] != old.conditions[i] {
			return false
		}
	}
	return false
}
