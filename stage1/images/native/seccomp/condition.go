package seccomp

import (
	"cmp"
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// maxArg is the highest index of a system call's argument.
const maxArg = 5

// condition compares one argument of a system call. It holds if
// argument OP datum, or for MASKED_EQ argument & mask == datum.
type condition struct {
	arg   uint
	op    specs.LinuxSeccompOperator
	mask  uint64 // of MASKED_EQ, else all ones
	datum uint64
}

// Operators returns the operators that Compile accepts, for the features
// document.
func Operators() []string {
	return []string{
		string(specs.OpEqualTo), string(specs.OpGreaterEqual), string(specs.OpGreaterThan),
		string(specs.OpLessEqual), string(specs.OpLessThan), string(specs.OpMaskedEqual),
		string(specs.OpNotEqual),
	}
}

// compileCondition checks an argument's condition and returns it for 64 bits.
func compileCondition(arg specs.LinuxSeccompArg) (condition, error) {
	c := condition{arg: arg.Index, op: arg.Op, mask: ^uint64(0), datum: arg.Value}
	if arg.Index > maxArg {
		return c, fmt.Errorf("argument index %d is greater than %d", arg.Index, maxArg)
	}
	if arg.Op == specs.OpMaskedEqual {
		c.mask, c.datum = arg.Value, arg.ValueTwo&arg.Value
	} else if !slices.Contains(Operators(), string(arg.Op)) {
		return c, fmt.Errorf("%q is not an operator", arg.Op)
	}
	return c, nil
}

// narrow cuts a condition to the 32 bits that an argument has on a narrow
// architecture.
func (c condition) narrow() condition {
	c.mask &= 0xffffffff
	c.datum &= c.mask
	return c
}

// order compares the first conditions in which two rules of one system call
// differ: the rule whose condition is less is tried first. It matters only
// where rules overlap and disagree, and is what libseccomp's tree comes to:
// higher arguments first; then tests for equality, then upper bounds, then
// lower bounds; then the more particular bound. What it leaves equal stays in
// the profile's order.
func (c condition) order(d condition) int {
	if n := cmp.Compare(d.arg, c.arg); n != 0 {
		return n
	}
	if n := cmp.Compare(c.class(), d.class()); n != 0 {
		return n
	}
	high := cmp.Compare(d.datum>>32, c.datum>>32)
	if high == 0 && (c.mask>>32 != d.mask>>32 || (c.op == specs.OpMaskedEqual) != (d.op == specs.OpMaskedEqual)) {
		return 0
	}
	n := cmp.Compare(d.datum, c.datum)
	if c.class() == classUpper {
		return -n
	}
	return n
}

const (
	classEqual = iota
	classUpper
	classLower
)

func (c condition) class() int {
	switch c.op {
	case specs.OpLessThan, specs.OpLessEqual:
		return classUpper
	case specs.OpGreaterThan, specs.OpGreaterEqual:
		return classLower
	}
	return classEqual
}
