package seccomp

import (
	"maps"
	"math"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// target is the result for a system call: an action, or rules to try.
type target struct {
	action uint32
	call   *call // nil: use action
}

// span is a range of system call numbers with one target. It ends where the
// next one begins.
type span struct {
	first  uint32
	target target
	// final means that the profile's rules have no effect in this range.
	final bool
}

// section is the part of a program that serves one audit architecture.
type section struct {
	audit uint32
	spans []span
}

// sections groups the filters by audit architecture, because x86-64 and x32
// share one.
func sections(filters []*filter, fallback uint32, enosys bool) []section {
	var made []section
	for i, f := range filters {
		if slices.ContainsFunc(filters[:i], func(g *filter) bool { return g.arch.audit == f.arch.audit }) {
			continue
		}
		calls := make(map[uint32]*call)
		var sharing []*filter
		for _, g := range filters[i:] {
			if g.arch.audit == f.arch.audit {
				maps.Copy(calls, g.calls)
				sharing = append(sharing, g)
			}
		}
		made = append(made, section{f.arch.audit, arrange(background(sharing, fallback, enosys), calls)})
	}
	return made
}

// background returns the spans of an audit architecture without any rule: the
// default action, ENOSYS above the highest number that the profile knows, and on
// x86-64 the numbers of x32.
//
// Some details only copy libseccomp and runc. If the profile does not cover x32,
// the number -1 does not count as a number of x32 although it has x32's bit,
// because tracers use it to skip a call. And runc, unlike libseccomp, recognises
// x32 by bit 30 alone, so numbers from 1<<31 on are treated like those from 0
// on.
func background(sharing []*filter, fallback uint32, enosys bool) []span {
	byDefault := target{action: fallback}
	newer := func(f *filter, first uint32, otherwise target) span {
		if enosys && f.highest != 0 {
			return span{first, target{action: retErrnoENOSYS}, true}
		}
		return span{first, otherwise, false}
	}
	native := sharing[0]
	spans := []span{{0, byDefault, false}, newer(native, native.highest+1, byDefault)}
	switch {
	case native.arch.name != specs.ArchX86_64:
		return spans
	case len(sharing) == 1:
		killed := target{action: badArch}
		return append(spans,
			span{x32Bit, killed, false},
			newer(native, 1<<31, killed),
			span{3 << 30, killed, false},
			span{math.MaxUint32, byDefault, false})
	default:
		x32 := sharing[1]
		return append(spans,
			span{x32Bit, byDefault, false},
			newer(x32, max(x32.highest, x32Bit)+1, byDefault),
			newer(native, 1<<31, byDefault),
			newer(x32, 3<<30, byDefault))
	}
}

// arrange inserts the calls that have rules into the background, and joins
// neighbours with the same target.
func arrange(background []span, calls map[uint32]*call) []span {
	numbers := slices.Sorted(maps.Keys(calls))
	var spans []span
	push := func(first uint32, t target) {
		if n := len(spans); n == 0 || spans[n-1].target != t {
			spans = append(spans, span{first: first, target: t})
		}
	}
	for i, ground := range background {
		end := uint64(math.MaxUint32) + 1
		if i+1 < len(background) {
			end = uint64(background[i+1].first)
		}
		next := uint64(ground.first) // the first number that has no span yet
		for len(numbers) > 0 && uint64(numbers[0]) < end {
			number := numbers[0]
			numbers = numbers[1:]
			if ground.final {
				continue
			}
			if next < uint64(number) {
				push(uint32(next), ground.target)
			}
			push(number, targetOf(calls[number]))
			next = uint64(number) + 1
		}
		if next < end {
			push(uint32(next), ground.target)
		}
	}
	return spans
}

func targetOf(c *call) target {
	if action, ok := c.unconditional(); ok {
		return target{action: action}
	}
	return target{call: c}
}
