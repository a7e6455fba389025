package seccomp

import (
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// maxArg is the highest index of a system call's argument.
const maxArg = 5

// condition compares one argument of a system call. It holds if argument OP
// datum is true; for MASKED_EQ, if argument & mask == datum.
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

// compileCondition checks the condition of an argument, and returns it for
// arguments of 64 bits.
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

// narrow cuts a condition to 32 bits, for architectures whose arguments have 32
// bits.
func (c condition) narrow() condition {
	c.mask &= 0xffffffff
	c.datum &= c.mask
	return c
}
