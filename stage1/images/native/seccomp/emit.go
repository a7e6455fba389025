package seccomp

import (
	"fmt"
	"slices"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// maxInstructions is the kernel's limit for one program.
const maxInstructions = unix.BPF_MAXINSNS

// Offsets into struct seccomp_data.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16 // 8 bytes each; the low word is first, because all machines with a table are little-endian
)

// Instruction codes.
const (
	opLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opAnd  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	opRet  = unix.BPF_RET | unix.BPF_K
	opJump = unix.BPF_JMP | unix.BPF_JA
	opEQ   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opGT   = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	opGE   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
)

// position is the place of an instruction, counted from the end of the program.
// So it stays valid while instructions are added at the front.
type position int

// maxReach is the distance that a conditional jump may cover. It is one less
// than the maximum of 255, because one more instruction may be inserted for the
// second target.
const maxReach = 254

// emitter writes a program from its last instruction to its first. All jumps go
// forward, so their targets are written already.
type emitter struct {
	backward []unix.SockFilter
	returns  map[uint32]position // the nearest return of each action
}

// emit writes the program of a profile.
func emit(filters []*filter, fallback uint32, enosys bool) ([]unix.SockFilter, error) {
	e := emitter{returns: make(map[uint32]position)}
	next := e.ret(badArch)
	for _, s := range slices.Backward(sections(filters, fallback, enosys)) {
		e.follow(e.tree(s.spans, fallback))
		body := e.load(offNumber)
		next = e.branch(opEQ, s.audit, body, next)
	}
	e.load(offArch)
	if n := len(e.backward); n > maxInstructions {
		return nil, fmt.Errorf("linux.seccomp: the profile needs %d instructions, and the kernel takes %d", n, maxInstructions)
	}
	slices.Reverse(e.backward)
	return e.backward, nil
}

// tree writes a binary search for the number in the accumulator. The search ends
// at the target of the number.
func (e *emitter) tree(spans []span, fallback uint32) position {
	if len(spans) == 1 {
		return e.target(spans[0].target, fallback)
	}
	half := len(spans) / 2
	above := e.tree(spans[half:], fallback)
	below := e.tree(spans[:half], fallback)
	return e.branch(opGE, spans[half].first, above, below)
}

// target writes the tests and the action for one system call.
func (e *emitter) target(t target, fallback uint32) position {
	if t.call == nil {
		return e.ret(t.action)
	}
	next := e.ret(fallback)
	for _, r := range slices.Backward(t.call.rules) {
		holds := e.ret(r.action)
		for _, c := range slices.Backward(r.conditions) {
			if t.call.wide {
				holds = e.wide(c, holds, next)
			} else {
				holds = e.narrow(c, holds, next)
			}
		}
		next = holds
	}
	return next
}

// narrow writes a condition on the low word of an argument.
func (e *emitter) narrow(c condition, holds, fails position) position {
	op, inverted := word(c.op)
	if inverted {
		holds, fails = fails, holds
	}
	e.branch(op, uint32(c.datum), holds, fails)
	return e.loadMasked(lowWord(c.arg), uint32(c.mask))
}

// wide writes a condition on both words of an argument. The low words decide
// only if the high words are equal.
func (e *emitter) wide(c condition, holds, fails position) position {
	op, inverted := word(c.op)
	if inverted {
		holds, fails = fails, holds
	}
	low, high := lowWord(c.arg), lowWord(c.arg)+4
	var equal position
	if uint32(c.mask) == 0 {
		equal = holds
	} else {
		e.branch(op, uint32(c.datum), holds, fails)
		equal = e.loadMasked(low, uint32(c.mask))
	}
	if c.mask>>32 == 0 {
		return equal
	}
	unequal := e.branch(opEQ, uint32(c.datum>>32), equal, fails)
	if op != opEQ {
		e.branch(opGT, uint32(c.datum>>32), holds, unequal)
	}
	return e.loadMasked(high, uint32(c.mask>>32))
}

// word returns the comparison of one word for an operator. inverted is set if
// the operator holds when the comparison does not.
func word(op specs.LinuxSeccompOperator) (code uint16, inverted bool) {
	switch op {
	case specs.OpNotEqual:
		return opEQ, true
	case specs.OpGreaterThan:
		return opGT, false
	case specs.OpLessEqual:
		return opGT, true
	case specs.OpGreaterEqual:
		return opGE, false
	case specs.OpLessThan:
		return opGE, true
	}
	return opEQ, false // for OpEqualTo and OpMaskedEqual
}

func lowWord(arg uint) uint32 { return offArgs + 8*uint32(arg) }

// push adds an instruction at the front of the program.
func (e *emitter) push(i unix.SockFilter) position {
	e.backward = append(e.backward, i)
	return position(len(e.backward) - 1)
}

func (e *emitter) load(offset uint32) position {
	return e.push(unix.SockFilter{Code: opLoad, K: offset})
}

func (e *emitter) loadMasked(offset, mask uint32) position {
	if mask != ^uint32(0) {
		e.push(unix.SockFilter{Code: opAnd, K: mask})
	}
	return e.load(offset)
}

// ret returns the position of an instruction that returns an action. If there is
// none yet, ret writes it.
func (e *emitter) ret(action uint32) position {
	if at, ok := e.returns[action]; ok {
		return at
	}
	at := e.push(unix.SockFilter{Code: opRet, K: action})
	e.returns[action] = at
	return at
}

// branch writes a conditional jump.
func (e *emitter) branch(op uint16, k uint32, then, otherwise position) position {
	then = e.near(then)
	otherwise = e.near(otherwise)
	here := position(len(e.backward))
	return e.push(unix.SockFilter{Code: op, K: k, Jt: uint8(here - then - 1), Jf: uint8(here - otherwise - 1)})
}

// follow makes the instruction that is written next continue at a position.
func (e *emitter) follow(at position) {
	here := position(len(e.backward))
	switch far := e.backward[at]; {
	case here-at == 1:
	case far.Code == opRet:
		e.push(far)
	default:
		e.push(unix.SockFilter{Code: opJump, K: uint32(here - at - 1)})
	}
}

// near returns a position that has the same effect as the position at, and that
// the next conditional jump can reach. If at is too far away, near writes an
// instruction: a copy of that at the position if it is a return, otherwise a
// long jump to the position.
func (e *emitter) near(at position) position {
	here := position(len(e.backward))
	if here-at-1 <= maxReach {
		return at
	}
	if far := e.backward[at]; far.Code == opRet {
		delete(e.returns, far.K)
		return e.ret(far.K)
	}
	return e.push(unix.SockFilter{Code: opJump, K: uint32(here - at - 1)})
}
